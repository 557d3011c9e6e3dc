//! How much of what was sent on a socket its peer has not taken yet, as far as the kernel knows.
#![allow(unsafe_code)]

use nix::libc::{TIOCOUTQ, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};

nix::ioctl_read_bad!(tiocoutq, TIOCOUTQ, c_int);

/// Bytes in the socket's send queue: of TCP what is not acknowledged, of a Unix socket what is not read, with what it
/// takes to keep it. None where the kernel does not say.
pub(super) fn queued_bytes(socket: BorrowedFd<'_>) -> usize {
    let mut bytes = 0;
    // SAFETY: the request writes one `int`, and `bytes` is one that outlives the call.
    let asked = unsafe { tiocoutq(socket.as_raw_fd(), &raw mut bytes) };
    asked.ok().and_then(|_| usize::try_from(bytes).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread::sleep;
    use std::time::Duration;

    /// What is not read is in the queue, and what is read leaves it.
    fn leaves(mut near: impl Write + AsFd, mut far: impl Read) {
        assert_eq!(queued_bytes(near.as_fd()), 0);
        let sent = std::iter::from_fn(|| near.write(&[7; 50_000]).ok()).sum::<usize>();
        let queued = queued_bytes(near.as_fd());
        assert!(queued > 10_000, "{queued} of {sent}");
        far.read_exact(&mut vec![0; sent]).unwrap();
        // Acknowledgements take a moment.
        let gone = |_: &u32| {
            sleep(Duration::from_millis(10));
            queued_bytes(near.as_fd()) == 0
        };
        assert!((0..500).any(|n| gone(&n)));
    }

    #[test]
    fn the_queue_is_what_the_peer_has_not_taken() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        leaves(near, far);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        leaves(near, listener.accept().unwrap().0);
    }
}
