//! Nothing. Only the features of this package's dependencies matter.
