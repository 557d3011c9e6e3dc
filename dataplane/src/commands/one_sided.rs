//! The flags g and p of `mg` and `ms`: what an item can be read by without a request.
//!
//! In: a key, and which flags there are. Out: its stag, its place in the memory file, or neither. Fails: where there are no
//! such reads the flag is refused as any other that memcached does not have.

use super::ctx::Ctx;
use crate::rdma::read_len;
use base::memory_file::Place;
use memcache::{Command, Echo, Fault, Form, ReadBy, Reads, Refusal, Refused, Stag, Verb};

/// What is known of an item whose length is not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Handles {
    stag: Option<u64>,
    place: Option<Place>,
}

/// The refusal of a command with a flag for reads that there are not.
#[inline]
pub(super) fn refused(ctx: &Ctx<'_>, command: &Command<'_>) -> Option<Command<'static>> {
    match command.form {
        Form::Meta(Echo { reads, .. }) if reads != Reads::default() => refused_of(ctx, reads),
        _ => None,
    }
}

#[cold]
fn refused_of(ctx: &Ctx<'_>, reads: Reads) -> Option<Command<'static>> {
    let no_stags = reads.stag && ctx.server().rdma.is_none();
    let no_places = reads.place && !ctx.session.store().has_places();
    (no_stags || no_places).then(|| {
        let why = Refusal::Meta(Fault::InvalidFlag);
        Command::text(Verb::Refused(Refused { why, forget: None, close: false }), false)
    })
}

/// What the command with this echo asks for.
#[inline]
pub(super) fn handles(ctx: &mut Ctx<'_>, echo: Option<&Echo<'_>>, key: &[u8]) -> Handles {
    match echo {
        Some(Echo { reads, .. }) if *reads != Reads::default() => look(ctx, *reads, key),
        _ => Handles::default(),
    }
}

#[cold]
fn look(ctx: &mut Ctx<'_>, reads: Reads, key: &[u8]) -> Handles {
    let hash = ctx.session.store().hash(key);
    let stag = ctx.server().rdma.as_ref().filter(|_| reads.stag).map(|rdma| rdma.stags.of(hash));
    let place = if reads.place { ctx.session.pin().place(hash, key) } else { None };
    Handles { stag, place }
}

impl Handles {
    /// With how much to READ of an item with a key and a value of these lengths, if that can be READ.
    pub(super) fn sized(self, key_len: usize, value_len: usize) -> ReadBy {
        let sized = |stag| Some(Stag { stag, read_len: read_len(key_len, value_len)? });
        ReadBy { stag: self.stag.and_then(sized), place: self.place }
    }
}
