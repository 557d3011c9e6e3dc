//! Connections that wait for a request, so that all of them can be woken when the service stops.
//!
//! In: their wakers. Out: a place for each. Fails: no memory for a place.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// A timer that ends so much too late shows a pause: the process was stopped, or its thread had no CPU. What did not move
/// meanwhile is not the client's fault.
pub(super) const LATE: Duration = Duration::from_millis(100);

/// Those of a thread that wait, or have.
#[derive(Debug, Default)]
pub(super) struct Waiting(RefCell<Places>);

#[derive(Debug, Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl Waiting {
    /// They look again what there is to do.
    pub(super) fn wake_all(&self) {
        self.0.borrow().wakers.iter().flatten().for_each(Waker::wake_by_ref);
    }

    /// A place from which `waker` is woken.
    pub(super) fn enter(&self, waker: &Waker) -> io::Result<u32> {
        let mut places = self.0.borrow_mut();
        if let Some(place) = places.free.pop() {
            if let Some(at) = places.wakers.get_mut(place as usize) {
                *at = Some(waker.clone());
            }
            return Ok(place);
        }
        let place = u32::try_from(places.wakers.len()).map_err(io::Error::other)?;
        let Places { wakers, free } = &mut *places;
        let none = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        wakers.try_reserve(1).map_err(none)?;
        // So that a connection that leaves can free its place without memory.
        free.try_reserve(wakers.len() + 1 - free.len()).map_err(none)?;
        wakers.push(Some(waker.clone()));
        Ok(place)
    }

    /// The place may be another's.
    pub(super) fn leave(&self, place: u32) {
        let mut places = self.0.borrow_mut();
        if let Some(at) = places.wakers.get_mut(place as usize) {
            *at = None;
            places.free.push(place);
        }
    }
}

/// Ends when a connection on which nothing moves has done so for too long.
pub(super) async fn idle(most: Option<Duration>) {
    match most {
        Some(most) => nap(most).await,
        None => std::future::pending().await,
    }
}

/// A timer on the heap: without `-o idle_timeout` no connection has one.
pub(super) fn nap(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_that_have_a_place_are_woken_and_places_are_used_again() {
        let (waiting, woken) = (Waiting::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        let places: Vec<u32> = (0..3).map(|_| waiting.enter(&waker).unwrap()).collect();
        assert_eq!(places, [0, 1, 2]);
        waiting.leave(1);
        waiting.wake_all();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert_eq!(waiting.enter(&waker).unwrap(), 1);
        waiting.wake_all();
        assert_eq!(woken.0.load(Ordering::Relaxed), 5);
    }
}
