//! Every layout that kernels share with the host, compared field by field. Nothing but a test.

#[cfg(test)]
mod tests {
    use crate::layout::{Entry, HEAD_BYTES_MAX, KEYS_MAX, KeyDesc, ReplyHead, ReqDesc};
    use crate::params::{
        CELLS, Control, CuckooTable, DIGEST_SHARED_BYTES, DigestParams, GET_SHARED_BYTES,
        GetParams, HashKey, Index, MicroEmptyParams, MicroLookupParams, MicroPingParams,
        MicroReadParams, Op, PacketRegion, Place, ServeParams, SetTable, TABLE_KEY_MAX, TABLES,
        UpdateCounts, UpdateParams, WAYS,
    };
    use crate::tables::{Bucket, Set, Way, way_bytes};
    use std::mem::offset_of;

    macro_rules! layouts {
        ($($type:ident { $($field:ident)* })*) => {
            vec![$(size_of::<$type>(), $(offset_of!($type, $field),)*)*]
        };
    }

    #[test]
    fn host_and_kernels_agree_on_every_byte() {
        let mut host = layouts! {
            Entry { slot off len l3 l4 flags mark }
            KeyDesc { off len hint location }
            ReqDesc { verdict reason verb n_keys payload_off payload_len keys }
            ReplyHead { len has_line sum flags value_len bytes }
            PacketRegion { base slot_bytes slots }
            HashKey { k0 k1 }
            SetTable { sets keys n_sets key_max }
            Set { tags lock locations stamps }
            Way { flags value_len key_len }
            Bucket { cells }
            CuckooTable { buckets n_buckets kicks_max }
            Index { key tables cuckoo }
            Place { entries descs heads n now rung done }
            GetParams { packets index place arrived }
            ServeParams { packets index places arrived control n_places blocks_per_place }
            Control { stop beat exit_after patience }
            Op { hash location flags value_len key_off key_len kind }
            UpdateCounts { inserted replaced removed absent evicted moved overflowed }
            UpdateParams { index ops keys counts n now }
            DigestParams { key bytes lengths hashes sums n stride }
            MicroReadParams {
                from to sum items item_bytes stride to_stride lanes groups rounds seed random
            }
            MicroLookupParams { index keys results n now key_bytes stride }
            MicroPingParams { bell answer answers patience pause_ns }
            MicroEmptyParams { runs }
        };
        host.extend([KEYS_MAX, HEAD_BYTES_MAX, WAYS, TABLES, CELLS]);
        host.extend([GET_SHARED_BYTES, DIGEST_SHARED_BYTES].map(|n| n as usize));
        host.extend(TABLE_KEY_MAX.map(way_bytes));
        let kernels: Vec<usize> = crate::simt::layouts().map(|n| n as usize).collect();
        assert_eq!(host, kernels);
    }
}
