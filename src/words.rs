//! Enums of which each variant has a word, for logs, settings and texts.

/// Defines such an enum, with `as_str` and its description, and the inverse.
macro_rules! words {
    (
        $about:literal
        $(#[$of:meta])*
        $vis:vis enum $name:ident { $($(#[$on:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$of])*
        $vis enum $name { $($(#[$on])* $variant,)+ }

        impl $name {
            /// Each with its word.
            $vis const WORDS: &[(&str, Self)] = &[$(($word, Self::$variant)),+];

            /// The inverse of [`as_str`](Self::as_str).
            $vis fn from_name(name: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(word, _)| *word == name).map(|(_, it)| *it)
            }

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
