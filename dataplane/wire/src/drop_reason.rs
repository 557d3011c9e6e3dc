//! Why a frame was dropped (D10): nothing is dropped without a name.
//!
//! Each reason is a counter in every worker. The invariant that every test of moving packets asserts:
//! `received = answered + punted + Σ dropped[reason] + in flight`.

use gpu::BadReason;

macro_rules! drop_reasons {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// Why a frame was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $doc] $variant,)* }

        impl DropReason {
            /// Every reason, in order of its number.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in counters and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The reason of this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|reason| reason.name() == name)
            }

            /// One line for people.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

drop_reasons! {
    EthTruncated "eth_truncated" "Shorter than its Ethernet and VLAN headers."
    EthNotOurs "eth_not_ours" "Addressed to another station."
    EthSource "eth_source" "The Ethernet source is a group address."
    VlanDepth "vlan_depth" "More than two VLAN tags."
    Ipv4Truncated "ipv4_truncated" "Shorter than its IPv4 header says."
    Ipv4Version "ipv4_version" "EtherType IPv4, version not 4."
    Ipv4HeaderLen "ipv4_header_len" "IPv4 header length below 20 bytes."
    Ipv4TotalLen "ipv4_total_len" "IPv4 total length beyond the frame or below the header."
    Ipv4Options "ipv4_options" "A request with IPv4 options."
    Ipv4Fragment "ipv4_fragment" "A fragment of an IPv4 packet, but the first of a request."
    Ipv4Checksum "ipv4_checksum" "Wrong IPv4 header checksum."
    Ipv6Truncated "ipv6_truncated" "Shorter than an IPv6 header."
    Ipv6Version "ipv6_version" "EtherType IPv6, version not 6."
    Ipv6PayloadLen "ipv6_payload_len" "IPv6 payload length beyond the frame."
    Ipv6Fragment "ipv6_fragment" "A fragment of an IPv6 packet, but the first of a request."
    Ipv6Extension "ipv6_extension" "A request behind IPv6 extension headers, or more of them than are followed."
    RequestToGroup "request_to_group" "A request to a broadcast or multicast address."
    SourceSpoofed "source_spoofed" "A source address that no peer can have: unspecified, multicast, reserved, of a whole network, our own, or loopback on a wire."
    SourcePort "source_port" "UDP source port 0, the service's own, or that of a service that answers anything: a reflection."
    SourceNotAllowed "source_not_allowed" "The source is outside every --allow network."
    RateSource "rate_source" "More requests than one source may send."
    RateSourceBytes "rate_source_bytes" "From a source that has had its bytes of replies."
    RateSourceWork "rate_source_work" "From a source whose earlier requests cost more work than it has paid for."
    RateTotal "rate_total" "More requests than all sources that are not trusted may send together."
    RateTotalBytes "rate_total_bytes" "From a source that is not trusted, when all of those have had their bytes of replies."
    RateTotalWork "rate_total_work" "From a source that is not trusted, when requests of all those cost more work than they have paid for."
    UdpTruncated "udp_truncated" "No room for a UDP header."
    UdpLength "udp_length" "UDP length does not fit its IP packet."
    UdpChecksum "udp_checksum" "Wrong UDP checksum, or none over IPv6."
    TcpTruncated "tcp_truncated" "No room for a TCP header, or for the options that it announces."
    TcpChecksum "tcp_checksum" "Wrong TCP checksum."
    TcpMalformed "tcp_malformed" "A TCP segment with flags that exclude each other, or with an option of a length that it cannot have."
    TcpNoConnection "tcp_no_connection" "A TCP segment of no connection that there is; a reset says so."
    TcpUnanswered "tcp_unanswered" "A TCP segment of no connection that there is, above the rate of resets, or behind the segment that ended its connection."
    TcpStray "tcp_stray" "A TCP segment that came to a worker, and is of another worker's connection: it is not answered."
    TcpUnacceptable "tcp_unacceptable" "A TCP segment whose numbers its connection does not allow: an RST or SYN in the middle, an old acknowledgement."
    TcpFull "tcp_full" "A TCP connection to be opened when all connection slots were taken."
    RdmaMalformed "rdma_malformed" "An RDMA packet cut short or of another version, or a READ request that is not exactly its headers long."
    RdmaIcrc "rdma_icrc" "An RDMA packet with a wrong invariant CRC."
    RdmaNoQueuePair "rdma_no_queue_pair" "An RDMA packet to a queue pair that its source has not opened, or that a refusal has ended."
    RdmaNotRequest "rdma_not_request" "An RDMA packet that requests nothing: a response, or of a service that is not offered."
    RdmaSequence "rdma_sequence" "An RDMA request whose PSN is neither the expected one nor that of an earlier request, after a refusal said so."
    RdmaBusy "rdma_busy" "An RDMA request whose queue pair another thread was using."
    RdmaFull "rdma_full" "An RDMA request when as many waited as may."
    KvFrameShort "kv_frame_short" "No memcached frame header, or nothing behind it."
    KvMultipart "kv_multipart" "A memcached request in several datagrams."
    ArpMalformed "arp_malformed" "An ARP packet that is not Ethernet over IPv4, or cut short."
    IcmpMalformed "icmp_malformed" "An ICMP message cut short or with a wrong checksum."
    NdMalformed "nd_malformed" "A neighbour solicitation that RFC 4861 says to discard."
    RateEcho "rate_echo" "More echo requests than are answered."
    RateNeighbour "rate_neighbour" "More ARP requests and neighbour solicitations than are answered."
    NotForUs "not_for_us" "To an IP address that is not ours, with no exception path to take it."
    NoExceptionPath "no_side_door" "For the kernel, and there is no exception path."
    ExceptionPathRate "side_door_rate" "For the kernel, above the exception path's rate."
    ExceptionPathFull "side_door_full" "For the kernel, and the exception path's queue was full."
    ForeignSlot "foreign_slot" "In a slot of another region than the worker's: its port was opened over the wrong one."
    Overload "overload" "The batcher had no place left."
    Unread "unread" "No engine has said what was asked."
    NoFrame "no_frame" "No free slot for a datagram of the reply."
    Amplification "amplification" "The source is not trusted, and even a refusal is more than it may be sent for its request."
    TxFull "tx_full" "The transmit queue stayed full."
}

impl From<BadReason> for DropReason {
    /// What an engine found wrong.
    fn from(bad: BadReason) -> Self {
        match bad {
            BadReason::IP_CHECKSUM => Self::Ipv4Checksum,
            BadReason::UDP_CHECKSUM => Self::UdpChecksum,
            BadReason::FRAME_MULTIPART => Self::KvMultipart,
            _ => Self::KvFrameShort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DropReason;

    #[test]
    fn numbers_match_positions_and_names_are_unique() {
        let mut names = std::collections::BTreeSet::new();
        for (i, r) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(r as usize, i);
            assert!(names.insert(r.name()));
        }
    }
}
