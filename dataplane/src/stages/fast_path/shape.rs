//! Shapes: gets of one key, of one form and over headers of one family, for each of which a pass is compiled; and one
//! for any of them.
//!
//! In: a frame as it came; it is only looked at. Out: its key, and what is known of the source, if it has the
//! shape. What a frame must have to be taken is what a plain `get` must have. Nothing fails.

use super::form::{FORM_AT, GetForm};
use crate::plain::family::{FRAME, Family, Headers, V4, V6, window};
use crate::plain::requests::{Asked, KEY, LOOK, RequestMatcher};
use crate::plain::vector::{KEY_BLOCK, LONG_BLOCK, Vector};
use crate::plain::window::{L4, UDP_LEN, WINDOW, part};
use driver_shim::Frame;
use memcache::Dialects;

/// The headers of a frame, and the form of the request in it.
pub(super) type FamilyAndForm = (Family, GetForm);
/// What most frames are: `get` over IPv4.
pub(super) const PLAIN: FamilyAndForm = (Family::V4, GetForm::Text);

/// A request of a shape, and a block that begins with its key.
pub(super) type Read<'f> = (Asked, &'f [u8; KEY_BLOCK]);

/// What a pass answers.
pub(super) trait Shape: Copy {
    /// Its headers.
    type Headers: Headers;
    /// Requests are plain `get`s.
    const IS_PLAIN: bool = false;
    /// The headers of all its frames, and the form of all its requests, where they have one.
    const ALL: Option<(Self::Headers, GetForm)>;
    /// Requests may be of any form.
    const IS_ANY: bool = Self::ALL.is_none();
    /// Keys are longer than a block.
    const IS_LONG: bool = matches!(Self::ALL, Some((_, GetForm::Long)));

    /// The headers of a frame.
    #[inline(always)]
    fn headers(_: &[u8; FRAME]) -> Option<Self::Headers> {
        Self::ALL.map(|(headers, _)| headers)
    }

    /// The form of the request in a frame.
    #[inline(always)]
    fn form(_: &[u8; WINDOW]) -> Option<GetForm> {
        Self::ALL.map(|(_, form)| form)
    }

    /// The request in a frame, if it has the shape.
    #[inline(always)]
    fn read<'f>(
        frame: &'f Frame,
        matcher: &mut RequestMatcher,
        dialects: Dialects,
        vector: impl Vector,
    ) -> Option<Read<'f>> {
        let bytes = frame.window::<FRAME>()?;
        let headers = Self::headers(bytes)?;
        let window = window(bytes, headers)?;
        let form = Self::form(window)?;
        if !form.begins(window) {
            return None;
        }
        let datagram = matcher.datagram(frame, (bytes, window), headers.family(), vector)?;
        let key_len = form.key_len(window, datagram.udp_len, dialects, vector)?;
        Some((Asked { key_len, ip_sum: datagram.ip_sum }, part(window, form.key_at())))
    }
}

/// `get` over IPv4.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

impl Shape for Plain {
    type Headers = V4;
    const IS_PLAIN: bool = true;
    const ALL: Option<(V4, GetForm)> = Some((V4, GetForm::Text));

    #[inline(always)]
    fn read<'f>(
        frame: &'f Frame,
        matcher: &mut RequestMatcher,
        _: Dialects,
        vector: impl Vector,
    ) -> Option<Read<'f>> {
        // All that a reply is written to is there, too.
        let look: &[u8; LOOK] = part(frame.window::<FRAME>()?, 0);
        let asked = matcher.asked(frame, look, vector)?;
        Some((asked, part(look, KEY)))
    }
}

/// Shapes of one form over headers of one family.
macro_rules! shapes {
    ($($(#[$doc:meta])* $shape:ident: $headers:ident, $form:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $shape;

        impl Shape for $shape {
            type Headers = $headers;
            const ALL: Option<($headers, GetForm)> = Some(($headers, GetForm::$form));
        }
    )*};
}

shapes! {
    /// `get` of a long key over IPv4.
    Long: V4, Long;
    /// `get` over IPv6.
    OverV6: V6, Text;
    /// `mg` over IPv4.
    Meta: V4, Meta;
    /// Binary gets over IPv4.
    Binary: V4, Binary;
}

/// Any form of a short key over any headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Any;

impl Shape for Any {
    type Headers = Family;
    const ALL: Option<(Family, GetForm)> = None;

    #[inline(always)]
    fn headers(bytes: &[u8; FRAME]) -> Option<Family> {
        Family::of(bytes)
    }

    #[inline(always)]
    fn form(window: &[u8; WINDOW]) -> Option<GetForm> {
        GetForm::of_short(window)
    }
}

/// A block that begins with the key of a frame that [`Shape::read`] has read, and holds any.
#[inline(always)]
pub(super) fn long_key<S: Shape>(frame: &Frame) -> Option<&[u8; LONG_BLOCK]> {
    let bytes = frame.window::<FRAME>()?;
    let window = window(bytes, S::headers(bytes)?)?;
    Some(part(window, S::form(window)?.key_at()))
}

/// The headers of a frame and the form of its request, as far as its first bytes show them.
#[inline(always)]
pub(super) fn of(frame: &Frame) -> Option<FamilyAndForm> {
    let bytes = frame.window::<FRAME>()?;
    let family = Family::of(bytes)?;
    let form = GetForm::of(window(bytes, family)?)?;
    // Long keys have no shape but that over IPv4: of others as many keys are short.
    let form = if form == GetForm::Long && family != Family::V4 { GetForm::Text } else { form };
    Some((family, form))
}

/// How frames of a kind begin, where their requests follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    ether_type: [u8; 2],
    /// Where IP says that UDP's header is the next, and how.
    plain: (usize, u8),
    /// Eight bytes of the request, which are `first` where `mask` has ones.
    request_at: usize,
    mask: u64,
    first: u64,
    /// UDP's length stands there, and is none below the first number and none above the second.
    length_at: usize,
    lengths: (u16, u16),
}

impl Beginning {
    pub(super) fn of((family, form): FamilyAndForm) -> Self {
        let (mask, first) = form.beginning();
        Self {
            ether_type: family.ether_type().to_be_bytes(),
            plain: family.plain(),
            request_at: family.shift() + FORM_AT,
            mask,
            first,
            length_at: family.shift() + UDP_LEN,
            lengths: form.lengths().into_inner(),
        }
    }

    /// Whether a frame begins so.
    #[inline(always)]
    pub(super) fn is_of(self, frame: &Frame) -> bool {
        let (at, plain) = self.plain;
        let (least, most) = self.lengths;
        frame.window::<FRAME>().is_some_and(|bytes| {
            *part(bytes, 12) == self.ether_type
                && *part(bytes, at) == [plain]
                && u64::from_le_bytes(*part(bytes, self.request_at)) & self.mask == self.first
                && (least..=most).contains(&u16::from_be_bytes(*part(bytes, self.length_at)))
        })
    }
}

/// Whether a frame that begins as those of a kind is a get of one key and nothing else, whatever else is wrong
/// with it.
#[inline(always)]
pub(super) fn is_get(
    frame: &Frame,
    (family, form): FamilyAndForm,
    dialects: Dialects,
    vector: impl Vector,
) -> bool {
    let window = frame.window::<FRAME>().and_then(|bytes| window(bytes, family));
    window.is_some_and(|window| {
        let udp_len = u16::from_be_bytes(*part(window, UDP_LEN)).into();
        family.shift() + L4 + udp_len <= frame.len()
            && form.key_len(window, udp_len, dialects, vector).is_some()
    })
}
