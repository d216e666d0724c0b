//! Operations of EC2.

use std::iter;

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_query};
use roxmltree::{Document, Node};

use super::super::facts::{NatGateway, Route, RouteTable, VpcEndpoint};
use super::{encoded, pages};

/// The route tables of a VPC.
pub(crate) async fn route_tables(sdk: &SdkConfig, vpc: &str) -> Result<Vec<RouteTable>, CallError> {
    let read: fn(&[u8]) -> _ = |body| read_page(body, "routeTableSet", route_table);
    pages(async |token| {
        let form = form("DescribeRouteTables", vpc, token);
        call_query(sdk, Service::Ec2, form, read).await
    })
    .await
}

/// The endpoints in a VPC.
pub(crate) async fn vpc_endpoints(
    sdk: &SdkConfig,
    vpc: &str,
) -> Result<Vec<VpcEndpoint>, CallError> {
    let read: fn(&[u8]) -> _ = |body| read_page(body, "vpcEndpointSet", vpc_endpoint);
    let mut endpoints = pages(async |token| {
        let form = form("DescribeVpcEndpoints", vpc, token);
        call_query(sdk, Service::Ec2, form, read).await
    })
    .await?;
    endpoints.retain(|endpoint| endpoint.vpc == vpc);
    Ok(endpoints)
}

/// The NAT gateways in a VPC.
pub(crate) async fn nat_gateways(sdk: &SdkConfig, vpc: &str) -> Result<Vec<NatGateway>, CallError> {
    let read: fn(&[u8]) -> _ = |body| read_page(body, "natGatewaySet", nat_gateway);
    pages(async |token| {
        let form = form("DescribeNatGateways", vpc, token);
        call_query(sdk, Service::Ec2, form, read).await
    })
    .await
}

fn form(action: &str, vpc: &str, token: Option<String>) -> String {
    let token = token.map(|token| format!("&NextToken={}", encoded(&token))).unwrap_or_default();
    format!(
        "Action={action}&Version=2016-11-15&Filter.1.Name=vpc-id&Filter.1.Value.1={}{token}",
        encoded(vpc)
    )
}

type Page<T> = (Vec<T>, Option<String>);

fn read_page<T>(
    body: &[u8],
    set: &str,
    read: fn(Node<'_, '_>) -> T,
) -> Result<Page<T>, Box<dyn std::error::Error + Send + Sync>> {
    let document = Document::parse(std::str::from_utf8(body)?)?;
    let response = document.root_element();
    let found = child(response, set).ok_or("the response has no list")?;
    let items = found.children().filter(Node::is_element).map(read).collect();
    Ok((items, text(response, "nextToken")))
}

fn route_table(table: Node<'_, '_>) -> RouteTable {
    let associations = || items(table, "associationSet");
    RouteTable {
        owner: text(table, "ownerId").unwrap_or_default(),
        is_main: associations().any(|one| text(one, "main").as_deref() == Some("true")),
        subnets: associations().filter_map(|one| text(one, "subnetId")).collect(),
        routes: items(table, "routeSet").map(route).collect(),
    }
}

/// Each kind of target has an element of its own.
fn route(route: Node<'_, '_>) -> Route {
    let mut children = route.children().filter(Node::is_element);
    let target = children.find(|child| {
        let name = child.tag_name().name();
        let is_target = name.ends_with("Id") || name.ends_with("Arn");
        is_target && !["destinationPrefixListId", "instanceOwnerId"].contains(&name)
    });
    let destinations = ["destinationCidrBlock", "destinationIpv6CidrBlock"];
    Route {
        // A prefix list is neither.
        destination: destinations.iter().find_map(|name| text(route, name)),
        target: target.and_then(|target| target.text()).unwrap_or_default().to_owned(),
        is_active: text(route, "state").as_deref() == Some("active"),
    }
}

fn vpc_endpoint(endpoint: Node<'_, '_>) -> VpcEndpoint {
    let given = |name| text(endpoint, name).unwrap_or_default();
    VpcEndpoint {
        id: given("vpcEndpointId"),
        vpc: given("vpcId"),
        is_interface: given("vpcEndpointType").eq_ignore_ascii_case("interface"),
        service: given("serviceName"),
        state: given("state"),
        has_private_dns: given("privateDnsEnabled") == "true",
    }
}

fn nat_gateway(gateway: Node<'_, '_>) -> NatGateway {
    NatGateway {
        id: text(gateway, "natGatewayId").unwrap_or_default(),
        is_public: text(gateway, "connectivityType").as_deref() == Some("public"),
    }
}

fn child<'n, 'i>(node: Node<'n, 'i>, name: &str) -> Option<Node<'n, 'i>> {
    node.children().find(|child| child.tag_name().name() == name)
}

fn text(node: Node<'_, '_>, name: &str) -> Option<String> {
    child(node, name)?.text().map(str::to_owned).filter(|text| !text.is_empty())
}

fn items<'n, 'i>(node: Node<'n, 'i>, set: &str) -> impl Iterator<Item = Node<'n, 'i>> {
    let set = child(node, set);
    set.into_iter()
        .flat_map(|set| iter::successors(set.first_element_child(), Node::next_sibling_element))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the examples of the EC2 API reference.
    #[test]
    fn routes_and_endpoints_are_read_with_their_targets() {
        let body =
            br#"<DescribeRouteTablesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>6f570b0b</requestId>
  <routeTableSet>
    <item>
      <routeTableId>rtb-1</routeTableId>
      <vpcId>vpc-1</vpcId>
      <ownerId>123456789012</ownerId>
      <routeSet>
        <item>
          <destinationCidrBlock>10.0.0.0/16</destinationCidrBlock>
          <gatewayId>local</gatewayId>
          <state>active</state>
        </item>
        <item>
          <destinationPrefixListId>pl-1</destinationPrefixListId>
          <gatewayId>vpce-1</gatewayId>
          <state>active</state>
        </item>
        <item>
          <destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>
          <natGatewayId>nat-1</natGatewayId>
          <state>blackhole</state>
        </item>
        <item>
          <destinationIpv6CidrBlock>::/0</destinationIpv6CidrBlock>
          <instanceOwnerId>123456789012</instanceOwnerId>
          <networkInterfaceId>eni-1</networkInterfaceId>
          <state>active</state>
        </item>
      </routeSet>
      <associationSet>
        <item><routeTableAssociationId>a-1</routeTableAssociationId><main>true</main></item>
        <item><subnetId>subnet-1</subnetId><main>false</main></item>
      </associationSet>
      <propagatingVgwSet/>
    </item>
  </routeTableSet>
  <nextToken>more</nextToken>
</DescribeRouteTablesResponse>"#;
        let (tables, next) = read_page(body, "routeTableSet", route_table).expect("tables");
        let route = |destination: Option<&str>, target: &str, is_active| Route {
            destination: destination.map(str::to_owned),
            target: target.to_owned(),
            is_active,
        };
        let table = RouteTable {
            owner: "123456789012".to_owned(),
            is_main: true,
            subnets: vec!["subnet-1".to_owned()],
            routes: vec![
                route(Some("10.0.0.0/16"), "local", true),
                route(None, "vpce-1", true),
                route(Some("0.0.0.0/0"), "nat-1", false),
                route(Some("::/0"), "eni-1", true),
            ],
        };
        assert_eq!((tables, next.as_deref()), (vec![table], Some("more")));
        let body = br"<DescribeVpcEndpointsResponse><vpcEndpointSet><item>
            <vpcEndpointId>vpce-1</vpcEndpointId><vpcEndpointType>Interface</vpcEndpointType>
            <vpcId>vpc-1</vpcId><serviceName>com.amazonaws.eu-west-1.sqs</serviceName>
            <state>available</state><privateDnsEnabled>true</privateDnsEnabled>
            </item></vpcEndpointSet></DescribeVpcEndpointsResponse>";
        let (endpoints, next) = read_page(body, "vpcEndpointSet", vpc_endpoint).expect("endpoints");
        let endpoint = VpcEndpoint {
            id: "vpce-1".to_owned(),
            vpc: "vpc-1".to_owned(),
            is_interface: true,
            service: "com.amazonaws.eu-west-1.sqs".to_owned(),
            state: "available".to_owned(),
            has_private_dns: true,
        };
        assert_eq!((endpoints, next), (vec![endpoint], None));
        let body = br"<DescribeNatGatewaysResponse><natGatewaySet>
            <item><natGatewayId>nat-1</natGatewayId><connectivityType>public</connectivityType></item>
            <item><natGatewayId>nat-2</natGatewayId><connectivityType>private</connectivityType></item>
            <item><natGatewayId>nat-3</natGatewayId></item>
            </natGatewaySet></DescribeNatGatewaysResponse>";
        let (gateways, _) = read_page(body, "natGatewaySet", nat_gateway).expect("gateways");
        let gateways = gateways.iter().map(|gateway| (&*gateway.id, gateway.is_public));
        let expected = [("nat-1", true), ("nat-2", false), ("nat-3", false)];
        assert_eq!(gateways.collect::<Vec<_>>(), expected);
        assert!(read_page(b"<Response/>", "vpcEndpointSet", vpc_endpoint).is_err());
    }
}
