//! The screen "Live": the events of a worker or a function that runs in this process.
