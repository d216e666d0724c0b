//! Findings about the network of a function in a VPC.

use super::*;

const ACCOUNT: &str = "123456789012";

fn route(destination: &str, target: &str) -> Route {
    let destination = (!destination.starts_with("pl-")).then(|| destination.to_owned());
    Route { destination, target: target.to_owned(), is_active: true }
}

fn table(subnet: &str, routes: &[(&str, &str)]) -> RouteTable {
    let local = [("10.0.0.0/16", "local"), ("pl-1", "vpce-s3")];
    let routes = local.iter().chain(routes);
    RouteTable {
        owner: ACCOUNT.to_owned(),
        is_main: subnet.is_empty(),
        subnets: vec![subnet.to_owned()],
        routes: routes.map(|(destination, target)| route(destination, target)).collect(),
    }
}

fn gateway(id: &str, is_public: bool) -> NatGateway {
    NatGateway { id: id.to_owned(), is_public }
}

/// A default route to a NAT gateway, with these in the VPC.
fn nat(d: &mut Deployment, gateways: Known<Vec<NatGateway>>) {
    vpc(d, &[("0.0.0.0/0", "nat-2")]).gateways = gateways;
}

/// Two subnets, of which the second has the main route table. The first has these routes beside the
/// usual ones.
fn vpc<'d>(d: &'d mut Deployment, routes: &[(&str, &str)]) -> &'d mut Vpc {
    let main = table("", &[("0.0.0.0/0", "nat-1")]);
    let subnets = ["subnet-1", "subnet-2"].map(str::to_owned).into();
    let tables = Ok(vec![main, table("subnet-1", routes)]);
    let public = ["nat-1", "nat-2"];
    let gateways = Ok(public.map(|id| gateway(id, true)).into());
    let id = "vpc-1".to_owned();
    let vpc = Vpc { id, subnets, has_ipv6: false, tables, endpoints: Ok(Vec::new()), gateways };
    d.function().vpc.insert(vpc)
}

fn routes(d: &mut Deployment, routes: &[(&str, &str)]) {
    vpc(d, routes);
}

fn endpoint(service: &str) -> VpcEndpoint {
    VpcEndpoint {
        id: format!("vpce-{service}"),
        vpc: "vpc-1".to_owned(),
        is_interface: true,
        service: format!("com.amazonaws.eu-west-1.{service}"),
        state: "available".to_owned(),
        has_private_dns: true,
    }
}

/// No routes, but this endpoint.
fn only(d: &mut Deployment, endpoint: VpcEndpoint) {
    vpc(d, &[]).endpoints = Ok(vec![endpoint]);
}

fn share(d: &mut Deployment) {
    d.table = Some(Table {
        name: "limits".to_owned(),
        arn: String::new(),
        properties: Ok(None),
        expiry: Ok(None),
        access: None,
        key: None,
    });
}

/// An endpoint for SQS, and a gateway endpoint for DynamoDB in the route tables of these subnets.
/// There is no way out.
fn gateway_endpoint(d: &mut Deployment, subnets: &[&str]) {
    share(d);
    let tables = ["subnet-1", "subnet-2"].map(|subnet| {
        let is_in = subnets.contains(&subnet).then_some(("pl-2", "vpce-dynamodb"));
        table(subnet, is_in.as_slice())
    });
    let dynamodb =
        VpcEndpoint { is_interface: false, has_private_dns: false, ..endpoint("dynamodb") };
    let vpc = vpc(d, &[]);
    vpc.tables = Ok(tables.into());
    vpc.endpoints = Ok(vec![endpoint("sqs"), dynamodb]);
}

const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";

pub(super) const ROWS: &[Row] = &[
    ("network", |d| routes(d, &[("0.0.0.0/0", "nat-2")]), Some(Fine)),
    ("network", |d| routes(d, &[]), Some(Danger)),
    ("network", |d| routes(d, &[("0.0.0.0/0", "igw-1")]), Some(Danger)),
    // Where these lead cannot be seen.
    ("network", |d| routes(d, &[("0.0.0.0/0", "tgw-1")]), Some(Unknown)),
    ("network", |d| routes(d, &[("0.0.0.0/0", "eni-1")]), Some(Unknown)),
    ("network", |d| routes(d, &[("10.0.0.0/8", "pcx-1"), ("0.0.0.0/0", "igw-1")]), Some(Unknown)),
    ("network", |d| routes(d, &[("0.0.0.0/0", "igw-1"), ("10.0.0.0/8", "pcx-1")]), Some(Unknown)),
    // A NAT gateway that was deleted.
    (
        "network",
        |d| {
            let vpc = vpc(d, &[("0.0.0.0/0", "nat-2")]);
            vpc.tables.as_mut().unwrap()[1].routes[2].is_active = false;
        },
        Some(Danger),
    ),
    // IPv6 counts only if the function uses it.
    ("network", |d| routes(d, &[("::/0", "eigw-1")]), Some(Danger)),
    ("network", |d| vpc(d, &[("::/0", "eigw-1")]).has_ipv6 = true, Some(Fine)),
    ("network", |d| routes(d, &[("::/0", "igw-1")]), Some(Danger)),
    ("network", |d| vpc(d, &[("::/0", "igw-1")]).has_ipv6 = true, Some(Unknown)),
    ("network", |d| vpc(d, &[("0.0.0.0/0", "nat-2")]).tables = refused(), Some(Unknown)),
    ("network", |d| vpc(d, &[]).endpoints = refused(), Some(Unknown)),
    ("network", |d| vpc(d, &[("0.0.0.0/0", "nat-2")]).endpoints = refused(), Some(Fine)),
    ("network", |d| vpc(d, &[]).tables = Ok(Vec::new()), Some(Unknown)),
    // Only its owner sees all of a shared VPC.
    (
        "network",
        |d| vpc(d, &[]).tables.as_mut().unwrap()[0].owner = "999999999999".to_owned(),
        Some(Unknown),
    ),
    ("network", |d| only(d, endpoint("sqs")), Some(Fine)),
    (
        "network",
        |d| {
            only(d, endpoint("sqs"));
            d.function().vpc.as_mut().unwrap().tables = refused();
        },
        Some(Fine),
    ),
    ("network", |d| only(d, endpoint("sns")), Some(Danger)),
    ("network", |d| only(d, VpcEndpoint { is_interface: false, ..endpoint("sqs") }), Some(Danger)),
    (
        "network",
        |d| only(d, VpcEndpoint { has_private_dns: false, ..endpoint("sqs") }),
        Some(Unknown),
    ),
    (
        "network",
        |d| only(d, VpcEndpoint { state: "pending".to_owned(), ..endpoint("sqs") }),
        Some(Unknown),
    ),
    // At its start the function reads the stored texts.
    (
        "network",
        |d| {
            d.secret(PARAMETER, Ok(AccessDecision::Allowed));
            only(d, endpoint("sqs"));
        },
        Some(Danger),
    ),
    (
        "network",
        |d| {
            d.secret(PARAMETER, Ok(AccessDecision::Allowed));
            vpc(d, &[]).endpoints = Ok(vec![endpoint("sqs"), endpoint("ssm")]);
        },
        Some(Fine),
    ),
    // With a table, the function calls DynamoDB, for which a gateway endpoint is usual.
    (
        "network",
        |d| {
            share(d);
            only(d, endpoint("sqs"));
        },
        Some(Danger),
    ),
    ("network", |d| gateway_endpoint(d, &["subnet-1", "subnet-2"]), Some(Fine)),
    ("network", |d| gateway_endpoint(d, &["subnet-1"]), Some(Danger)),
    // With `own`, the function asks STS who it is.
    (
        "network",
        |d| {
            trust(d, true);
            only(d, endpoint("sqs"));
        },
        Some(Danger),
    ),
    (
        "network",
        |d| {
            trust(d, true);
            vpc(d, &[]).endpoints = Ok(vec![endpoint("sqs"), endpoint("sts")]);
        },
        Some(Fine),
    ),
    (
        "network",
        |d| {
            trust(d, false);
            only(d, endpoint("sqs"));
        },
        Some(Fine),
    ),
    // Only a public NAT gateway leads to the internet.
    (
        "network",
        |d| nat(d, Ok(vec![gateway("nat-1", true), gateway("nat-2", false)])),
        Some(Unknown),
    ),
    ("network", |d| nat(d, Ok(vec![gateway("nat-1", true)])), Some(Unknown)),
    ("network", |d| nat(d, refused()), Some(Unknown)),
    (
        "network",
        |d| {
            vpc(d, &[("10.0.0.0/8", "nat-3"), ("0.0.0.0/0", "nat-2")])
                .gateways
                .as_mut()
                .unwrap()
                .push(gateway("nat-3", false));
        },
        Some(Fine),
    ),
    // The first subnet has no way, whatever the gateway of the other is.
    ("network", |d| vpc(d, &[]).gateways = refused(), Some(Danger)),
    (
        "network",
        |d| {
            only(d, endpoint("sqs"));
            d.function().vpc.as_mut().unwrap().gateways = refused();
        },
        Some(Fine),
    ),
];

fn trust(d: &mut Deployment, own: bool) {
    d.valid().config.trusted_senders.insert(TrustedSenders::default()).own = own;
}

#[test]
fn the_reason_why_a_nat_gateway_is_unclear_is_told() {
    for (gateways, expected) in [
        (
            Ok(vec![gateway("nat-1", true), gateway("nat-2", false)]),
            "not checked: the way to sqs, since subnet-1 has a route to nat-2, a private NAT \
             gateway, which does not lead to the internet",
        ),
        (refused(), "not checked: aws:Ask on it was refused (AccessDenied)"),
    ] {
        let mut deployment = good();
        nat(&mut deployment, gateways);
        assert_eq!(found(&deployment, "network").unwrap().diagnosis.found, expected);
    }
}

#[test]
fn a_subnet_without_a_way_is_named() {
    let mut deployment = good();
    routes(&mut deployment, &[("0.0.0.0/0", "igw-1")]);
    let finding = found(&deployment, "network").unwrap();
    assert_eq!(
        finding.diagnosis.found,
        "no way to sqs: subnet-1 has a route to igw-1 only, and a function has no public address"
    );
    assert_eq!(
        finding.diagnosis.remedies[0],
        "aws ec2 create-vpc-endpoint --region eu-west-1 --vpc-id vpc-1 --vpc-endpoint-type \
         Interface --service-name com.amazonaws.eu-west-1.sqs --private-dns-enabled --subnet-ids \
         subnet-1 subnet-2 --security-group-ids GROUP, with a group that admits port 443 from the \
         function"
    );
}
