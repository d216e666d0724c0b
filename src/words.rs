//! Enums of which each variant has a word, for logs, settings and texts.

/// Defines such an enum, with `as_str` and its description.
macro_rules! words {
    (
        $about:literal
        $(#[$of:meta])*
        $vis:vis enum $name:ident { $($(#[$on:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$of])*
        $vis enum $name { $($(#[$on])* $variant,)+ }

        impl $name {
            #[doc = $about]
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use words;
