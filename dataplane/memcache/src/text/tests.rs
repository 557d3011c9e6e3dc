use super::*;

fn command(input: &[u8]) -> Command<'_> {
    match parse(input, 1 << 20) {
        Parsed::Command { command, used } => {
            assert_eq!(used, input.len(), "{:?}", String::from_utf8_lossy(input));
            command
        }
        other => panic!("{other:?}"),
    }
}

fn refusal(input: &[u8]) -> Refusal {
    match command(input).verb {
        Verb::Refused(Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_are_read_as_the_standard_library_reads_them() {
    let bytes = |n: u32| n.to_le_bytes();
    for n in 0..=u32::from(u16::MAX) {
        let text = bytes(n);
        for token in [&text[..1], &text[..2]] {
            let theirs = std::str::from_utf8(token).ok();
            assert_eq!(number::<u8>(token), theirs.and_then(|t| t.parse().ok()), "{token:?}");
            assert_eq!(number::<i64>(token), theirs.and_then(|t| t.parse().ok()), "{token:?}");
        }
    }
    assert_eq!(number::<i32>(b"-12"), Some(-12));
    assert_eq!(number::<u8>(b"256"), None);
    assert_eq!(number::<u64>(b""), None);
}

#[test]
fn gets_of_one_and_many_keys() {
    for (line, want, cas) in [
        (&b"get a\r\n"[..], vec![&b"a"[..]], false),
        (b"get a\n", vec![b"a"], false),
        (b"gets a b  c \r\n", vec![b"a", b"b", b"c"], true),
        (b"  get a\r\n", vec![b"a"], false),
    ] {
        let Verb::Get(Get { keys, with_cas, .. }) = command(line).verb else { panic!() };
        assert_eq!(keys.iter().collect::<Vec<_>>(), want);
        assert_eq!(with_cas, cas);
    }
    let many = [b"get".to_vec(), b" k".repeat(300), b"\r\n".to_vec()].concat();
    let Verb::Get(Get { keys, .. }) = command(&many).verb else { panic!() };
    assert_eq!(keys.iter().count(), 300);
}

#[test]
fn numbers_short_and_long() {
    for text in ["0", "7", "42", "99", "007", "4294967295", "4294967296", "9999999999999999999"] {
        assert_eq!(number::<u32>(text.as_bytes()), text.parse().ok(), "{text}");
        assert_eq!(number::<i64>(text.as_bytes()), text.parse().ok(), "{text}");
        assert_eq!(number::<u64>(text.as_bytes()), text.parse().ok(), "{text}");
    }
    for text in ["", "-1", "+1", "1x", "18446744073709551615", "18446744073709551616"] {
        assert_eq!(number::<u64>(text.as_bytes()), text.parse().ok(), "{text}");
        assert_eq!(number::<i32>(text.as_bytes()), text.parse().ok(), "{text}");
    }
}

#[test]
fn key_lengths() {
    for (n, ok) in [(1, true), (250, true), (251, false)] {
        let key = vec![b'k'; n];
        let get = [b"get ", &key[..], b"\r\n"].concat();
        assert_eq!(matches!(command(&get).verb, Verb::Get(_)), ok);
        let delete = [b"delete ", &key[..], b"\r\n"].concat();
        assert_eq!(matches!(command(&delete).verb, Verb::Delete(_)), ok);
        let set = [b"set ", &key[..], b" 0 0 0\r\n\r\n"].concat();
        match parse(&set, 1024) {
            Parsed::Command { command: Command { verb: Verb::Store(what), .. }, .. } if ok => {
                assert_eq!(what.key, key);
            }
            Parsed::Swallow { command, used, skip } if !ok => {
                assert_eq!(command, refused(Refusal::BadLineFormat, false));
                assert_eq!((used, skip), (set.len() - 2, 2));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn set_carries_all_arguments() {
    let line = b"set k 4294967295 -1 5 noreply\r\na\r\nb\0\r\n";
    let what = Store::set(b"k", u32::MAX, -1, b"a\r\nb\0");
    assert_eq!(command(line), Command::text(Verb::Store(what), true));
    let what = Store::set(b"k", 0, 0, b"");
    assert_eq!(command(b"set k 0 0 0\n\r\n"), Command::text(Verb::Store(what), false));
}

#[test]
fn what_is_read_at_one_go_is_read_alike() {
    let limit = 60;
    let agree = |input: &[u8]| {
        let at_once = plain::plain_set(input, limit);
        if let Some(PlainSet { what, noreply, used }) = at_once {
            let command = Command::text(Verb::Store(what), noreply);
            let parsed = Parsed::Command { command, used };
            assert_eq!(parsed, strict(input, limit), "{:?}", input.escape_ascii().to_string());
        }
        plain::plain_set(input, limit).is_some()
    };
    let long = [&b"set "[..], &[b'k'; 250], b" 0 0 1\r\nx\r\n"].concat();
    let longer = [&b"set "[..], &[b'k'; 251], b" 0 0 1\r\nx\r\n"].concat();
    assert!(agree(&long) && !agree(&longer));
    let usual: [&[u8]; 4] = [
        b"set key:0000000001 0 0 12\r\n0123456789ab\r\n",
        b"set k 999999999 000000007 0\r\n\r\n",
        b"set \xff\x7f! 1 2 5 noreply\r\na\r\nb\0\r\nget a\r\n",
        b"set k 0 0 60\r\n012345678901234567890123456789012345678901234567890123456789\r\n",
    ];
    for input in usual {
        assert!(agree(input), "{:?}", input.escape_ascii().to_string());
        // Nothing that is nearly that is read as something else.
        for at in 0..input.len() {
            assert!(!agree(&input[..at]) || input.ends_with(b"get a\r\n"));
            for byte in [0, b' ', b'\r', b'\n', b'0', b'9', b'+', b'-', b':', b'/', b'x', 0xff] {
                let mut other = input.to_vec();
                other[at] = byte;
                agree(&other);
                other.insert(at, byte);
                agree(&other);
            }
        }
    }
    for input in
        [&b"set k 0 0 1234567890\r\n"[..], b"set k  0 0 1\r\nx\r\n", b"set  0 0 1\r\nx\r\n"]
    {
        assert!(!agree(input), "{:?}", input.escape_ascii().to_string());
    }
}

#[test]
fn storage_commands_differ_in_when_they_store() {
    for (verb, mode) in [
        ("add", StoreMode::Add),
        ("replace", StoreMode::Replace),
        ("append", StoreMode::Append),
        ("prepend", StoreMode::Prepend),
    ] {
        let line = format!("{verb} k 1 2 1\r\nv\r\n");
        let what = Store { mode, ..Store::set(b"k", 1, 2, b"v") };
        assert_eq!(command(line.as_bytes()), Command::text(Verb::Store(what), false));
    }
    let what = Store { cas: Some(u64::MAX), ..Store::set(b"k", 1, 2, b"v") };
    let line = b"cas k 1 2 1 18446744073709551615 noreply\r\nv\r\n";
    assert_eq!(command(line), Command::text(Verb::Store(what), true));
    assert_eq!(refusal(b"cas k 1 2 x\r\n"), Refusal::Error);
    assert_eq!(refusal(b"cas k 1 2 1 1 noreply x\r\n"), Refusal::Error);
}

#[test]
fn numbers_and_times() {
    let arith = |decrement, delta| {
        let what = Arith {
            key: b"k",
            delta,
            decrement,
            cas: None,
            initial: None,
            own_cas: None,
            exptime: None,
        };
        Command::text(Verb::Arith(what), false)
    };
    assert_eq!(command(b"incr k 18446744073709551615\r\n"), arith(false, u64::MAX));
    assert_eq!(command(b"decr k 0 x\r\n"), arith(true, 0));
    assert_eq!(refusal(b"incr k -1\r\n"), Refusal::InvalidDelta);
    assert_eq!(refusal(b"incr k 1 noreply x\r\n"), Refusal::Error);
    let touch = Command::text(Verb::Touch(Touch { key: b"k", exptime: -1 }), true);
    assert_eq!(command(b"touch k -1 noreply\r\n"), touch);
    assert_eq!(refusal(b"touch k x\r\n"), Refusal::InvalidExptime);
    let Verb::Get(Get { keys, with_cas, touch }) = command(b"gats 5 a b\r\n").verb else {
        panic!()
    };
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!((with_cas, touch), (true, Some(5)));
    assert!(matches!(command(b"gat 0\r\n").verb, Verb::Get(Get { touch: Some(0), .. })));
    assert_eq!(refusal(b"gat x a\r\n"), Refusal::InvalidExptime);
    for (line, delay, noreply) in [
        (&b"flush_all\r\n"[..], 0, false),
        (b"flush_all 7\r\n", 7, false),
        (b"flush_all noreply\r\n", 0, true),
        (b"flush_all -1 noreply\r\n", -1, true),
    ] {
        assert_eq!(command(line), Command::text(Verb::Flush { delay }, noreply));
    }
    let flush = Command::text(Verb::FlushPrefix { prefix: b"a:b" }, true);
    assert_eq!(command(b"flush_prefix a:b noreply\r\n"), flush);
    assert_eq!(refusal(b"flush_all x\r\n"), Refusal::InvalidExptime);
    assert_eq!(refusal(b"flush_all 0 1 2\r\n"), Refusal::Error);
    assert_eq!(command(b"verbosity 9\r\n"), Command::text(Verb::Verbosity, false));
    assert_eq!(refusal(b"verbosity x\r\n"), Refusal::BadLineFormat);
    assert_eq!(refusal(b"verbosity\r\n"), Refusal::Error);
}

#[test]
fn exptimes_of_32_bits_without_a_sign_are_negative_ones() {
    let month = 30 * 24 * 60 * 60;
    for (written, meant) in [
        ("4294967295", -1),
        ("4294967294", -2),
        ("4292375296", -month),
        ("4292375295", 4_292_375_295),
        ("4294967296", 4_294_967_296),
        ("2147483648", 2_147_483_648),
        ("-1", -1),
    ] {
        let line = format!("set k 0 {written} 1\r\nv\r\n");
        let set = Command::text(Verb::Store(Store::set(b"k", 0, meant, b"v")), false);
        assert_eq!(command(line.as_bytes()), set);
        let touch = Command::text(Verb::Touch(Touch { key: b"k", exptime: meant }), false);
        assert_eq!(command(format!("touch k {written}\r\n").as_bytes()), touch);
        let line = format!("gat {written} k\r\n");
        let Verb::Get(get) = command(line.as_bytes()).verb else { panic!() };
        assert_eq!(get.touch, Some(meant));
        let line = format!("mg k T{written} N{written} R{written}\r\n");
        let Verb::Fetch(get) = command(line.as_bytes()).verb else { panic!() };
        assert_eq!((get.touch, get.create, get.recache), (Some(meant), Some(meant), Some(meant)));
        let flush = Command::text(Verb::Flush { delay: written.parse().unwrap() }, false);
        assert_eq!(command(format!("flush_all {written}\r\n").as_bytes()), flush);
    }
}

#[test]
fn set_waits_for_its_data() {
    let whole = b"set k 0 0 3\r\nabc\r\n";
    for n in 0..whole.len() {
        let Parsed::Incomplete { at_least } = parse(&whole[..n], 1024) else { panic!("{n}") };
        assert!(at_least > n && at_least <= whole.len());
    }
}

#[test]
fn bad_data_takes_what_was_announced() {
    let input = b"set k 0 0 3\r\nabcdef\r\n";
    let Parsed::Command { command, used } = parse(input, 1024) else { panic!() };
    assert_eq!(command, refused(Refusal::BadDataChunk, false));
    assert_eq!(&input[used..], b"f\r\n");
}

#[test]
fn too_large_is_swallowed_and_forgotten() {
    let Parsed::Swallow { command, used, skip } = parse(b"set k 0 0 1025\r\nxx", 1024) else {
        panic!()
    };
    assert_eq!((used, skip), (16, 1027));
    let refused = Refused { why: Refusal::TooLarge, forget: Some(b"k"), close: false };
    assert_eq!(command, Command::text(Verb::Refused(refused), false));
}

#[test]
fn a_refused_block_is_not_read_as_commands() {
    let long = [&b"set "[..], &[b'k'; 251], b" 0 0 1\r\n"].concat();
    for (line, noreply) in [
        (&long[..], false),
        (b"set k x 0 1\r\n", false),
        (b"set k -1 0 1\r\n", false),
        (b"add k 4294967296 0 1\r\n", false),
        (b"replace k 0 x 1 noreply\r\n", true),
        (b"cas k 1 2 1 x\r\n", false),
        (b"cas k 1 2 1\r\n", false),
    ] {
        let command = refused(Refusal::BadLineFormat, noreply);
        let swallow = Parsed::Swallow { command, used: line.len(), skip: 3 };
        assert_eq!(parse(line, 1024), swallow, "{}", line.escape_ascii());
    }
}

#[test]
fn refusals_in_memcacheds_words() {
    for (line, want) in [
        (&b"\r\n"[..], Refusal::Error),
        (b"x\r\n", Refusal::Error),
        (b"get\r\n", Refusal::Error),
        (b"get \r\n", Refusal::Error),
        (b"set k 0 0\r\n", Refusal::Error),
        (b"set k 0 0 1 noreply x\r\n", Refusal::Error),
        (b"set k 0 0 -1\r\n", Refusal::BadLineFormat),
        (b"set k 0 0 2147483647\r\n", Refusal::BadLineFormat),
        (b"set k 0 0 99999999999\r\n", Refusal::BadLineFormat),
        (b"delete k 1\r\n", Refusal::DeleteUsage),
        (b"delete k 0 1\r\n", Refusal::DeleteUsage),
        (b"delete\r\n", Refusal::Error),
        (b"delete k 0 noreply x\r\n", Refusal::Error),
        (b"GET k\r\n", Refusal::Error),
    ] {
        assert_eq!(refusal(line), want, "{:?}", String::from_utf8_lossy(line));
    }
}

#[test]
fn a_set_without_its_length_is_refused_in_silence_when_it_says_so() {
    let want = refused(Refusal::BadLineFormat, true);
    assert_eq!(command(b"set k 0 0 noreply\r\n"), want);
}

#[test]
fn deletes() {
    for (line, quiet) in [
        (&b"delete k\r\n"[..], false),
        (b"delete k 0\r\n", false),
        (b"delete k noreply\r\n", true),
        (b"delete k 0 noreply\r\n", true),
    ] {
        let what = Delete { key: b"k", cas: None, leave: None };
        assert_eq!(command(line), Command::text(Verb::Delete(what), quiet));
    }
}

#[test]
fn web_browsers_are_hung_up_on() {
    for line in [&b"GET / HTTP/1.1\r\n"[..], b"POST /x HTTP/1.0\r\nset a 0 0 1\r\nx\r\n"] {
        assert_eq!(parse(line, 1024), Parsed::Hopeless);
    }
    assert!(matches!(command(b"get HTTP/1.1\r\n").verb, Verb::Get(_)));
    assert_eq!(refusal(b"G / HTTP/1.1\r\n"), Refusal::Error);
}

#[test]
fn endless_lines_are_cut_off() {
    assert_eq!(parse(&[b'x'; LINE_MAX_BYTES + 1], 1024), Parsed::Hopeless);
    assert!(matches!(parse(&[b'x'; LINE_MAX_BYTES], 1024), Parsed::Incomplete { .. }));
    let long = [b"get ".to_vec(), vec![b'x'; 5000]].concat();
    assert!(matches!(parse(&long, 1024), Parsed::Incomplete { .. }));
    let endless = [b"get ".to_vec(), vec![b'x'; GET_LINE_MAX_BYTES]].concat();
    assert_eq!(parse(&endless, 1024), Parsed::Hopeless);
}
