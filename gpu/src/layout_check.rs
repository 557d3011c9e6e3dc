//! Every layout that kernels share with the host, compared field by field. Nothing but a test.

#[cfg(test)]
mod tests {
    use crate::layout::{
        Entry, HEAD_BYTES_MAX, KEYS_MAX, KeyDesc, REPLY_HEAD_BYTES, ROW_TEXT_MAX, ReplyHead,
        ReqDesc, RowFacts, WHOLE_TEXT_MAX, WholeReply,
    };
    use crate::params::{
        CELLS, CuckooTable, DIGEST_SHARED_BYTES, DigestParams, Doorbells, GET_SHARED_BYTES,
        GetParams, HashKey, Index, MicroEmptyParams, MicroLookupParams, MicroMultiplyParams,
        MicroPingParams, MicroReadParams, Op, Order, PacketRegion, Place, RINGS_MAX, RowTable,
        ServeParams, SetTable, TABLE_KEY_MAX, TABLES, UPDATE_SHARED_BYTES, UpdateCounts,
        UpdateParams, WAYS, Work, WorkQueue,
    };
    use crate::tables::{Bucket, Row, Set, Way, way_bytes};
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
            RowFacts { text_len value_len item_class key_len verb sum expiry signature }
            Row { facts text }
            WholeReply { facts head text more }
            PacketRegion { base slot_bytes slots }
            HashKey { k0 k1 }
            SetTable { sets keys n_sets key_max }
            Set { tags lock locations stamps }
            Way { flags value_len key_len }
            Bucket { cells }
            CuckooTable { buckets n_buckets kicks_max }
            RowTable { signatures rows n_sets }
            Index { key tables cuckoo rows }
            Order { entries descs heads n now rung }
            Place { order done }
            Doorbells { stop beat rung }
            Work { order place arrived part parts ticket taken }
            WorkQueue { drawn given seen }
            GetParams { packets index place arrived }
            ServeParams {
                packets index doorbells places arrived queue ring_places queue_mask patience_ms
                batches_max
            }
            Op { hash location flags value_len key_off key_len kind }
            UpdateCounts { inserted replaced removed absent evicted moved overflowed arrived }
            UpdateParams { index ops keys totals counts n now launch }
            DigestParams { key bytes lengths hashes sums n stride }
            MicroReadParams {
                from to sum items item_bytes stride to_stride lanes groups rounds seed random
            }
            MicroLookupParams { index keys results n now key_bytes stride }
            MicroMultiplyParams { a b to first rounds stride passes }
            MicroPingParams { bell answer answers patience pause_ns }
            MicroEmptyParams { runs }
        };
        host.extend([KEYS_MAX, HEAD_BYTES_MAX, WAYS, TABLES, CELLS, RINGS_MAX]);
        host.extend([REPLY_HEAD_BYTES, ROW_TEXT_MAX, WHOLE_TEXT_MAX]);
        host.extend(
            [GET_SHARED_BYTES, DIGEST_SHARED_BYTES, UPDATE_SHARED_BYTES].map(|n| n as usize),
        );
        host.extend(TABLE_KEY_MAX.map(way_bytes));
        let kernels: Vec<usize> = crate::simt::layouts().map(|n| n as usize).collect();
        assert_eq!(host, kernels);
    }
}
