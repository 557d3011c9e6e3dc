//! Kinds of things that reports name.
//!
//! In: an enum, and what people read for each of its variants. Out: the enum, its variants in their
//! order, and their names.

/// An enum whose variants have names: `ALL` of them in order, and the `name` of each.
macro_rules! named {
    ($(#[$attribute:meta])* $vis:vis enum $kind:ident {
        $($(#[$about:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$attribute])*
        $vis enum $kind { $($(#[$about])* $variant,)* }

        impl $kind {
            /// All of them, in order.
            $vis const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The word for people, in reports and tables.
            $vis fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}
pub(crate) use named;
