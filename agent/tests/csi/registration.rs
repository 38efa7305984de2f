//! How kubelet gets to know the plugin.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gridcast_proto::csi::v1::identity_client::IdentityClient;
use gridcast_proto::csi::v1::node_client::NodeClient;
use gridcast_proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
    ProbeRequest,
};
use gridcast_proto::pluginregistration::registration_client::RegistrationClient;
use gridcast_proto::pluginregistration::{InfoRequest, RegistrationStatus};

use crate::node::{NODE, Node, connect, until};

#[tokio::test]
async fn kubelet_asks_who_it_is_and_tells_what_came_of_it() {
    let node = Node::new(100).await;
    let mut registration = RegistrationClient::new(connect(&node.registration()).await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.gridcast.io"));
    assert_eq!(info.supported_versions, ["1.0.0"]);
    // kubelet goes where it is told.
    let channel = connect(std::path::Path::new(&info.endpoint)).await;
    let mut csi = NodeClient::new(channel.clone());
    let told = csi.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((told.node_id.as_str(), told.max_volumes_per_node), (NODE, 0));
    csi.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    let registered = RegistrationStatus { plugin_registered: true, error: String::new() };
    registration.notify_registration_status(registered).await.unwrap();

    let mut identity = IdentityClient::new(channel);
    let plugin = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((plugin.name.as_str(), plugin.vendor_version.is_empty()), ("csi.gridcast.io", false));
    identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await.unwrap();
    assert_eq!(identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready, Some(true));
    assert!(node.registration().exists(), "kubelet may come again after its restart");
}

#[tokio::test]
async fn after_a_failed_registration_the_socket_is_offered_anew() {
    let node = Node::new(100).await;
    let inode =
        || std::fs::metadata(node.registration()).map(|meta| std::os::unix::fs::MetadataExt::ino(&meta)).ok();
    let before = inode().unwrap();
    {
        let mut registration = RegistrationClient::new(connect(&node.registration()).await);
        let failed = RegistrationStatus { plugin_registered: false, error: "no API server".into() };
        registration.notify_registration_status(failed).await.unwrap();
    }
    // kubelet must see it go, and come.
    until("it goes", || inode().is_none()).await;
    until("it comes", || inode().is_some_and(|inode| inode != before)).await;
    let mut registration = RegistrationClient::new(connect(&node.registration()).await);
    registration.get_info(InfoRequest {}).await.unwrap();
}

/// What gRPC for Go 1.72 wrote for kubelet's two calls on one connection: preface and settings, GetInfo, and
/// NotifyRegistrationStatus, whose header block refers to the authority of the first by its place in the table.
const KUBELET: [&str; 3] = [
    "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a000000040000000000000000040100000000",
    "0000860104000000018386459c62ba2d98d558598c84d83498f52fb4b31909b06931ea63115392a94f41ae5458534d6a8b0cc45a63aa2c3d55\
     161ae8b6635488ac2cc6426cf4a8b091065e6b0d210684ae63ad61665d07275f5f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bba25c3\
     40027465864d833505b11f40899acac8b24d494f6a7f8669f7d9784fdb0000050001000000010000000000",
    "000039010400000003838645a862ba2d98d558598c84d83498f52fb4b31909b06931ea6349d2697d6d2cc6426c1a4c7ab72469b51fc3c2c1c0\
     7f008669f7c2fbccdb00000700010000000300000000020801",
];

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Reads frames until a stream ends; the payloads of the stream.
fn answer(connection: &mut UnixStream, stream: u8) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut header = [0; 9];
        connection.read_exact(&mut header).unwrap();
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).unwrap();
        assert!(!matches!(header[3], 3 | 7), "the server refused: {header:?} {payload:?}");
        if header[8] == stream {
            all.extend(payload);
            // Trailers end the stream.
            if header[3] == 1 && header[4] & 1 != 0 {
                return all;
            }
        }
    }
}

#[tokio::test]
async fn a_request_whose_host_is_the_socket_s_path_is_answered() {
    let node = Node::new(100).await;
    let mut connection = UnixStream::connect(node.registration()).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection.write_all(&bytes(KUBELET[0])).unwrap();
    connection.write_all(&bytes(KUBELET[1])).unwrap();
    let info = answer(&mut connection, 1);
    assert!(info.windows(9).any(|part| part == b"CSIPlugin"), "{info:?}");
    connection.write_all(&bytes(KUBELET[2])).unwrap();
    answer(&mut connection, 3);
}
