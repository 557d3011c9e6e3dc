//! Accepting, its turns, and its end.

use super::*;
use crate::serve::tcp::drain::{Drain, QUIET};
use crate::serve::tcp::shared::tests::{in_time, thread};
use std::cell::Cell;
use std::future::ready;
use std::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;

/// Thread `number` of those with these loads, with so many permits for all.
fn conns(
    number: usize,
    loads: &Arc<[AtomicUsize]>,
    permits: &Arc<Semaphore>,
    stopped: watch::Receiver<Option<Drain>>,
) -> Rc<ThreadConns> {
    Rc::new(ThreadConns {
        shared: thread(None, stopped),
        permits: Arc::clone(permits),
        refuse_over_limit: true,
        drain_max: Duration::ZERO,
        number,
        loads: Arc::clone(loads),
        connections: Cell::new(0),
        is_empty: Notify::new(),
        ended: Arc::default(),
        handshakes: None,
    })
}

fn source() -> (Source, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    (Source::Tcp(listener, None), to)
}

fn loads<const N: usize>(loads: [usize; N]) -> Arc<[AtomicUsize]> {
    loads.map(AtomicUsize::new).into_iter().collect()
}

#[tokio::test]
async fn nothing_is_accepted_after_the_stop_though_clients_wait() {
    let (_stop, stopped) = watch::channel(None);
    let (loads, none) = (loads([0]), Arc::new(Semaphore::new(0)));
    // Each is counted and closed.
    let thread = conns(0, &loads, &none, stopped);
    let ((source, to), turns) = (source(), Turns::new(&loads));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(to).await.unwrap());
    }
    let taken = || thread.shared.ops.rejected_connections.get();
    in_time(accept_until(ready(()), &source, &turns, &thread)).await;
    assert_eq!(taken(), 0);
    let all = async {
        while taken() < 3 {
            yield_now().await;
        }
    };
    in_time(accept_until(all, &source, &turns, &thread)).await;
}

/// What has connected is accepted, though the thread gets no processor until the time for that is over.
#[tokio::test]
async fn what_the_kernel_has_at_the_end_is_accepted() {
    let (stop, stopped) = watch::channel(None);
    let (loads, none) = (loads([0]), Arc::new(Semaphore::new(0)));
    let thread = conns(0, &loads, &none, stopped);
    let ((source, to), turns) = (source(), Arc::new(Turns::new(&loads)));
    let local = LocalSet::new();
    let accepting = local.spawn_local(accept_on(source, turns, Rc::clone(&thread)));
    let clients = local.run_until(async {
        yield_now().await;
        stop.send(Some(Drain::new(Duration::from_secs(60)))).unwrap();
        yield_now().await;
        let clients: Vec<_> = (0..30).map(|_| std::net::TcpStream::connect(to).unwrap()).collect();
        std::thread::sleep(2 * QUIET);
        in_time(accepting).await.unwrap();
        clients
    });
    let clients = clients.await;
    assert_eq!(thread.shared.ops.rejected_connections.get(), clients.len() as u64);
}

/// Whatever else the thread has to do has its turn after each connection, accepted or refused.
#[tokio::test]
async fn others_have_turns_while_connections_are_refused() {
    let (_stop, stopped) = watch::channel(None);
    let (loads, none) = (loads([0]), Arc::new(Semaphore::new(0)));
    let thread = conns(0, &loads, &none, stopped);
    let ((source, to), turns) = (source(), Turns::new(&loads));
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(TcpStream::connect(to).await.unwrap());
    }
    let (local, others) = (LocalSet::new(), Rc::new(Cell::new(0)));
    let counts = Rc::clone(&others);
    local.spawn_local(async move {
        loop {
            counts.set(counts.get() + 1);
            yield_now().await;
        }
    });
    let all = async {
        while thread.shared.ops.rejected_connections.get() < 100 {
            yield_now().await;
        }
    };
    in_time(local.run_until(accept_until(all, &source, &turns, &thread))).await;
    assert!(others.get() >= 100, "{} turns", others.get());
}

#[test]
fn it_is_the_turn_of_who_has_clearly_less_to_do() {
    for (counts, thread, next) in [
        ([0, 0, 0], 1, 1),
        ([0, 1, 0], 1, 0),
        ([1, 1, 0], 0, 2),
        ([2, 1, 1], 0, 1),
        ([5, 4, 9], 0, 1),
        ([9, 8, 8], 0, 0),
        ([10, 8, 8], 0, 1),
        ([804, 800, 1000], 0, 0),
        ([805, 800, 1000], 0, 1),
        ([805, 800, 1000], 1, 1),
    ] {
        assert_eq!(Turns::new(&loads(counts)).next(thread), next, "{counts:?}, {thread}");
    }
}

/// Each connection is accepted once, by threads in turn.
#[tokio::test]
async fn threads_accept_in_turn() {
    let (_stop, stopped) = watch::channel(None);
    let (loads, permits) = (loads([0; 3]), Arc::new(Semaphore::new(300)));
    let ((source, to), turns) = (source(), Rc::new(Turns::new(&loads)));
    let source = Rc::new(source);
    let local = LocalSet::new();
    for number in 0..3 {
        let thread = conns(number, &loads, &permits, stopped.clone());
        let (source, turns) = (Rc::clone(&source), Rc::clone(&turns));
        local.spawn_local(async move {
            accept_until(std::future::pending(), &source, &turns, &thread).await;
        });
    }
    let counts = || loads.iter().map(|load| load.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let wait_for = async |all: usize| {
        while counts().iter().sum::<usize>() != all {
            yield_now().await;
        }
    };
    local
        .run_until(async {
            let mut clients = Vec::new();
            for n in 1..=300 {
                clients.push(TcpStream::connect(to).await.unwrap());
                in_time(wait_for(n)).await;
                let (least, most) = (counts().into_iter().min(), counts().into_iter().max());
                let more = if n <= 30 { 2 } else { UNEVEN_MAX + 1 };
                assert!(most <= least.map(|n| n + more), "{:?}", counts());
                if n == 30 {
                    assert_eq!(counts(), [10; 3]);
                }
            }
            // Who has lost all of its clients is the next.
            clients.clear();
            in_time(wait_for(0)).await;
            clients.push(TcpStream::connect(to).await.unwrap());
            in_time(wait_for(1)).await;
        })
        .await;
}
