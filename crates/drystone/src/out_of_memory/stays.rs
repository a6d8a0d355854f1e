//! [`Stays`]: what keeps live memory where it is.

/// Why live memory was not moved together for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stays {
    /// Streams may use it that the allocator was not told of.
    UnknownStreams,
    /// A stream did not come to a stop in time, or streams were left alone since one did not.
    BusyStreams,
    /// The device cannot hold streams while it maps memory.
    Device,
    /// Another capture was under way.
    Capture,
    /// The backend has plain memory, or leaves it to the driver.
    Plain,
    /// The options say that memory stays where it was created.
    Off,
}

impl Stays {
    /// The same in words, as the end of a sentence.
    pub const fn why(self) -> &'static str {
        match self {
            Stays::UnknownStreams => {
                "streams may use it that Drystone does not know: start the program preloaded, or \
                 say that all streams are known"
            }
            Stays::BusyStreams => "a stream was at work for more than 2 ms",
            Stays::Device => "this device cannot hold streams while memory is mapped",
            Stays::Capture => "a graph is being captured",
            Stays::Plain => "it is not mapped memory",
            Stays::Off => "remap:off keeps memory at the addresses that it was created for",
        }
    }
}
