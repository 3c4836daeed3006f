//! Makes the Rust code of the services in `proto`. The compiler is protox, so that no `protoc` has to be installed.

use std::{env, error::Error, fs, path::PathBuf};

/// What nodes say to each other, below `proto`.
const PEER: [&str; 1] = ["dolomedes/peer/v1/peer.proto"];
/// The public API.
const API: [&str; 6] = [
    "dolomedes/v1/queue.proto",
    "dolomedes/v1/cluster.proto",
    "dolomedes/v1/jobs.proto",
    "dolomedes/v1/lock.proto",
    "dolomedes/v1/registry.proto",
    "dolomedes/v1/checkpoint.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    tonic_prost_build::configure()
        // The connections are our own, over hyper.
        .build_transport(false)
        // A payload is a slice of what was received, not a copy.
        .bytes(".")
        .compile_fds(protox::compile(PEER, ["proto"])?)?;
    let api = protox::compile(API, ["proto"])?;
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("dolomedes_v1.bin");
    fs::write(descriptors, prost::Message::encode_to_vec(&api))?;
    tonic_prost_build::configure().bytes(".").compile_fds(api)?;
    Ok(())
}
