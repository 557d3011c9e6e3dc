//! Accepting, and its end.

use super::shared::tests::{in_time, thread};
use super::*;
use std::future::ready;
use std::net::TcpListener;
use tokio::net::TcpStream;

#[tokio::test]
async fn nothing_is_accepted_after_the_stop_though_clients_wait() {
    let (_stop, stopped) = watch::channel(None);
    let thread = Rc::new(ThreadConns {
        shared: thread(None, stopped),
        // Each is counted and closed.
        permits: Arc::new(Semaphore::new(0)),
        refuse_over_limit: true,
        drain_max: Duration::ZERO,
        connections: Cell::new(0),
        is_empty: Notify::new(),
        ended: Arc::default(),
        handshakes: None,
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    let listener = Listener::new(Source::Tcp(listener, None)).unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(to).await.unwrap());
    }
    // From here on the runtime knows that there are more.
    drop(in_time(listener.accept()).await.unwrap());
    let taken = || thread.shared.ops.rejected_connections.get();
    in_time(accept_until(ready(()), &listener, &thread)).await;
    assert_eq!(taken(), 0);
    let all = async {
        while taken() < 2 {
            yield_now().await;
        }
    };
    in_time(accept_until(all, &listener, &thread)).await;
}
