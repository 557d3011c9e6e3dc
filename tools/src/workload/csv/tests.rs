use super::*;

fn all(text: &str) -> Result<(Vec<Row>, u64), CsvError> {
    let mut rows = Rows::new(text.as_bytes());
    let mut all = Vec::new();
    while let Some(row) = rows.next_row()? {
        all.push(row);
    }
    Ok((all, rows.skipped()))
}

#[test]
fn twitters_form_needs_no_header() {
    let text = "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n\
                12,yDqF:3q:1AJrrJ1nnCJKKrnGx1A,27,27,5,add,86400\n\
                12,q:q:1:8WTfjZU14ee,17,0,4,delete,0\n";
    let (rows, skipped) = all(text).unwrap();
    assert_eq!((rows.len(), skipped), (3, 0));
    assert_eq!((rows[0].verb, rows[1].verb, rows[2].verb), (Verb::Get, Verb::Set, Verb::Delete));
    assert_eq!((rows[0].key.bytes, rows[0].value_bytes, rows[0].count), (17, 213, 1));
    assert_eq!((rows[1].time_ns, rows[1].ttl_s), (12_000_000_000, 86_400));
    assert_eq!(rows[0].key, rows[2].key);
    assert_eq!(rows[0].client, rows[2].client);
    assert_ne!(rows[0].key.index, rows[1].key.index);
    assert_ne!(rows[0].client, rows[1].client);
}

#[test]
fn cachelibs_forms_are_read_by_their_headers() {
    let (rows, _) =
        all("key,op,size,op_count,key_size\n1668757755,SET,82,1,40\n1665497896,GET,169,18,78\n")
            .unwrap();
    assert_eq!((rows[0].verb, rows[0].value_bytes, rows[0].key.bytes), (Verb::Set, 82, 40));
    assert_eq!((rows[1].verb, rows[1].count, rows[1].time_ns), (Verb::Get, 18, 0));
    let (rows, _) =
        all("op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
                         604038473,7c,67,SET,1,65,0,7200,27,65\n\
                         604038474,7c,67,GET_LEASE,7,10,7,0,17,17\n")
        .unwrap();
    assert_eq!((rows[0].time_ns, rows[0].ttl_s), (604_038_473_000_000_000, 7_200));
    assert_eq!((rows[1].count, rows[1].verb, rows[1].key), (7, Verb::Get, rows[0].key));
}

#[test]
fn a_field_in_quotes_may_hold_commas_and_line_ends() {
    let (rows, skipped) = all("time,key,op,size\n1,\"a,b\n\"\"c\",get,7\n2,d,get,8\n").unwrap();
    assert_eq!((rows.len(), skipped), (2, 0));
    assert_eq!((rows[0].key.bytes, rows[0].value_bytes, rows[1].value_bytes), (6, 7, 8));
}

#[test]
fn any_order_any_case_blanks_and_missing_columns() {
    let (rows, _) = all(" Op , Anonymized Key ,Value Size\r\nSET, abc , 7 \r\n").unwrap();
    assert_eq!((rows[0].key.bytes, rows[0].value_bytes), (3, 7));
    let (rows, _) = all("time,op,key\n1.5,get,a\n2.000000001,get,b\n").unwrap();
    assert_eq!((rows[0].time_ns, rows[1].time_ns), (1_500_000_000, 2_000_000_001));
}

#[test]
fn what_makes_no_sense_is_counted_or_refused() {
    let text = "0,a,1,1,1,get,0\n0,a,x,1,1,get,0\n0,,1,1,1,get,0\n0,a,1,1,1,fly,0\n-1,a,1,1,1,get,0\n\
                # a remark\n\n0,a,1,1,1\n0,b,999,1,1,get,99999999999\n";
    let (rows, skipped) = all(text).unwrap();
    assert_eq!((rows.len(), skipped), (2, 5));
    assert_eq!((rows[1].key.bytes, rows[1].ttl_s), (250, 0));
    assert!(matches!(all("time,key,size\n1,2,3\n"), Err(CsvError::Column("operation", _))));
    assert!(matches!(all("time,op\n1,get\n"), Err(CsvError::Column("key", _))));
    assert!(matches!(all("this,is\nno,trace\n"), Err(CsvError::Nothing(2))));
    assert!(matches!(all(&"x".repeat(1 << 17)), Err(CsvError::Line(1))));
    let open_quote = format!("0,a,1,1,1,get,0\n0,\"{}", "b\n".repeat(1 << 17));
    assert!(matches!(all(&open_quote), Err(CsvError::Line(_))));
    let longest = format!("0,{},17,1,1,get,0\n", "x".repeat(60_000)).repeat(5);
    assert_eq!(all(&longest).unwrap().0.len(), 5);
    assert!(all("").unwrap().0.is_empty());
    let missing = FileRows::open(Path::new("/nonexistent/trace.csv")).unwrap_err();
    assert!(missing.to_string().contains("check the name"), "{missing}");
}

#[test]
fn damage_is_never_a_panic() {
    let good =
        b"time,key,key_size,size,client,op,ttl\n1.5,abc,3,10,1,get,60\n2,abc,3,10,1,set,60\n";
    for at in 0..good.len() {
        for byte in [0, b',', b'\n', b'.', b'9', 0xff] {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            let mut rows = Rows::new(&bytes[..]);
            while let Ok(Some(_)) = rows.next_row() {}
        }
    }
}
