//! What clients of one-sided reads ask over TCP, and the same without stags.
//!
//! In: keys, lengths, and how a stag is made of a key. Out: scripts, with every reply to the byte.

use crate::report::named;
use crate::study::tcp::script::{Exchange, Script};
use crate::workload::Key;
use crate::workload::values;
use gnomon_client::codec::{Field, Stag};
use gnomon_client::service::{append_get, append_set};

named! {
    /// What is asked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Asked {
        /// `ms`, as it ever was.
        Set = "SET",
        /// The same, answered with the stag.
        SetStag = "SET that returns the stag",
        /// `mg`, as it ever was.
        Get = "GET",
        /// The same with the stag: a key's first get.
        FirstGet = "first GET, which returns the stag",
    }
}

impl Asked {
    /// For every key.
    pub(super) fn script(
        self,
        (keys, key_bytes): (u64, usize),
        value_bytes: usize,
        stag: impl Fn(&[u8]) -> Stag,
    ) -> Script {
        let exchange = |index| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            Key { index, bytes: key_bytes }.append(&mut key);
            values::append(index, 0, value_bytes, &mut value);
            let flags = values::flags(index);
            let Stag { id, len } = stag(&key);
            let (mut request, mut reply) = (Vec::new(), Vec::new());
            match self {
                Self::Set | Self::SetStag => append_set::<Stag>(&key, flags, &value, &mut request),
                Self::Get | Self::FirstGet => append_get::<Stag>(&key, &mut request),
            }
            if matches!(self, Self::Set | Self::Get) {
                without_stag(&mut request);
            }
            let head = match self {
                Self::Set => "HD\r\n".to_owned(),
                Self::SetStag => format!("HD g{id:016x},{len}\r\n"),
                Self::Get | Self::FirstGet => format!("VA {value_bytes} f{flags} k"),
            };
            reply.extend_from_slice(head.as_bytes());
            if matches!(self, Self::Get | Self::FirstGet) {
                reply.extend_from_slice(&key);
            }
            match self {
                Self::FirstGet => {
                    reply.extend_from_slice(format!(" g{id:016x},{len}\r\n").as_bytes())
                }
                Self::Get => reply.extend_from_slice(b"\r\n"),
                Self::Set | Self::SetStag => {}
            }
            if matches!(self, Self::Get | Self::FirstGet) {
                reply.extend_from_slice(&value);
                reply.extend_from_slice(b"\r\n");
            }
            Exchange { request, reply }
        };
        Script::of((0..keys).map(exchange).collect())
    }
}

/// Takes the last flag of the line away.
fn without_stag(request: &mut Vec<u8>) {
    if let Some(end) = request.windows(4).position(|four| four == b" g\r\n") {
        request.drain(end..end + 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_asked_and_answered_in_its_words() {
        let stag = |_: &[u8]| Stag { id: 0xabc, len: 67 };
        let text = |asked: Asked| {
            let script = asked.script((3, 24), 3, stag);
            let Exchange { request, reply } = script.exchange(2).unwrap();
            [request, reply].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let mut value = Vec::new();
        values::append(2, 0, 3, &mut value);
        let value = String::from_utf8_lossy(&value).into_owned();
        let key = "kkkkkkkkkkkkk00000000002";
        let g = "g0000000000000abc,67";
        assert_eq!(text(Asked::Set), [format!("ms {key} 3 F2\r\n{value}\r\n"), "HD\r\n".into()]);
        assert_eq!(
            text(Asked::SetStag),
            [format!("ms {key} 3 F2 g\r\n{value}\r\n"), format!("HD {g}\r\n")]
        );
        assert_eq!(
            text(Asked::Get),
            [format!("mg {key} v f k\r\n"), format!("VA 3 f2 k{key}\r\n{value}\r\n")]
        );
        assert_eq!(
            text(Asked::FirstGet),
            [format!("mg {key} v f k g\r\n"), format!("VA 3 f2 k{key} {g}\r\n{value}\r\n")]
        );
    }
}
