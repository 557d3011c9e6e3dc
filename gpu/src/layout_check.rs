//! Every layout that kernels share with the host, compared field by field. Nothing but a test.

#[cfg(test)]
mod tests {
    use crate::layout::*;
    use crate::params::*;
    use crate::tables::*;
    use std::mem::offset_of;

    macro_rules! layouts {
        ($($type:ident { $($field:ident)* })*) => {
            vec![$(size_of::<$type>(), $(offset_of!($type, $field),)*)*]
        };
    }

    #[test]
    fn host_and_kernels_agree_on_every_byte() {
        // A call of `layouts!`.
        let mut host = include!("../simt/layouts.in");
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
