//! Whether a function in a VPC reaches the services that it calls. The doctor sees routes and
//! endpoints, but no security group, no network ACL, and nothing behind a gateway.

use super::super::access_policy::account;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{Function, NatGateway, RouteTable, Vpc, VpcEndpoint};

pub(super) const WHY: &str = "In a VPC, a function reaches SQS only through an interface endpoint \
                              or a public NAT gateway. Without one, no copy is sent, and each \
                              message waits for its timeout.";

const DYNAMODB: &str = "dynamodb";
const UNSEEN: &str = "security groups and network ACLs are not checked";

pub(super) fn network(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let Some(vpc) = &function.vpc else {
        return Ok(Diagnosis::ok("the function is in no VPC, so it reaches SQS"));
    };
    let region = context.region();
    let services = services(context, function);
    let endpoints = vpc.endpoints.as_ref();
    let serving = |service: &&str| {
        let mut endpoints = endpoints.ok()?.iter();
        endpoints.find(|endpoint| serves(endpoint, service, region) && is_usable(endpoint))
    };
    let through = |service: &&str| serving(service).or_else(|| gateway(vpc, service, region));
    let missing: Vec<&str> =
        services.iter().copied().filter(|service| through(service).is_none()).collect();
    if missing.is_empty() {
        let found = services
            .iter()
            .filter_map(|service| Some(format!("{} for {service}", through(service)?.id)));
        let found: Vec<String> = found.collect();
        return Ok(Diagnosis::ok(format!(
            "the function has an endpoint: {}; endpoint policies, {UNSEEN}",
            found.join(", ")
        )));
    }
    let ways: Vec<(&str, Way<'_>)> = match &vpc.tables {
        Ok(tables) => {
            vpc.subnets.iter().map(|subnet| (&**subnet, way(vpc, tables, subnet))).collect()
        }
        Err(unread) => return Err(unread.into()),
    };
    let told = |ways: &[(&str, Way<'_>)]| {
        let told: Vec<String> =
            ways.iter().map(|(subnet, way)| format!("{subnet} {}", way.told())).collect();
        told.join(", ")
    };
    let (good, rest): (Vec<_>, Vec<_>) =
        ways.into_iter().partition(|(_, way)| matches!(way, Way::Out(_)));
    if rest.is_empty() {
        return Ok(Diagnosis::ok(format!("{}; {UNSEEN}", told(&good))));
    }
    let to = missing.join(", ");
    let remedies = remedies(vpc, region, &missing);
    let (dead, unclear): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|(_, way)| matches!(way, Way::DeadEnd(_) | Way::None));
    let unknown = |found| Err(Skip::not_checked(found, remedies.clone()));
    if dead.is_empty() {
        if unclear.iter().any(|(_, way)| matches!(way, Way::Unread(_))) {
            vpc.gateways.as_ref()?;
        }
        return unknown(format!("the way to {to}, since {}", told(&unclear)));
    }
    let endpoints = endpoints?;
    let is_offered =
        |endpoint: &&VpcEndpoint| missing.iter().any(|service| serves(endpoint, service, region));
    if let Some(VpcEndpoint { id, state, .. }) = endpoints.iter().find(is_offered) {
        return unknown(format!(
            "the endpoint {id} is {state}, but has no private DNS or is not available, and {}",
            told(&dead)
        ));
    }
    // The owner of a shared VPC sees more of it.
    if vpc.tables.as_ref()?.iter().any(|table| table.owner != account(&function.role)) {
        return unknown(format!("{} belongs to another account, and {}", vpc.id, told(&dead)));
    }
    Ok(Diagnosis::danger(format!("no way to {to}: {}", told(&dead)), remedies))
}

/// The gateway endpoint to which the route table of each subnet leads.
fn gateway<'v>(vpc: &'v Vpc, service: &str, region: &str) -> Option<&'v VpcEndpoint> {
    let tables = vpc.tables.as_ref().ok()?;
    vpc.endpoints.as_ref().ok()?.iter().find(|endpoint| {
        let leads = |subnet| {
            let mut routes = table_of(tables, subnet).into_iter().flat_map(|table| &table.routes);
            routes.any(|route| route.target == endpoint.id && route.is_active)
        };
        !endpoint.is_interface
            && endpoint.service.ends_with(&format!(".{region}.{service}"))
            && vpc.subnets.iter().all(leads)
    })
}

fn table_of<'v>(tables: &'v [RouteTable], subnet: &String) -> Option<&'v RouteTable> {
    let own = tables.iter().find(|table| table.subnets.contains(subnet));
    own.or_else(|| tables.iter().find(|table| table.is_main))
}

/// The services that the function calls. If its settings are unknown, SQS alone.
fn services(context: &Context<'_>, function: &Function) -> Vec<&'static str> {
    // With `own`, the function asks STS for its principal.
    let trusts_itself = context
        .config()
        .is_ok_and(|config| config.trusted_senders.as_ref().is_some_and(|trusted| trusted.own));
    let stored = |service| {
        let mut secrets = function.secrets.iter();
        secrets.any(|secret| secret.arn.split(':').nth(2) == Some(service))
    };
    let stored = ["secretsmanager", "ssm"].into_iter().filter(|service| stored(service));
    let shares = context.deployment.table.is_some().then_some(DYNAMODB);
    let further = stored.chain(trusts_itself.then_some("sts")).chain(shares);
    ["sqs"].into_iter().chain(further).collect()
}

fn serves(endpoint: &VpcEndpoint, service: &str, region: &str) -> bool {
    // Partitions have other beginnings than `com.amazonaws`.
    endpoint.is_interface && endpoint.service.ends_with(&format!(".{region}.{service}"))
}

fn is_usable(endpoint: &VpcEndpoint) -> bool {
    endpoint.has_private_dns && endpoint.state.eq_ignore_ascii_case("available")
}

/// The way of a subnet to public addresses.
enum Way<'v> {
    /// Through a public NAT gateway, or over IPv6 through an egress-only internet gateway.
    Out(&'v str),
    /// A function has no public address, so an internet gateway returns no response. And the target of
    /// a blackhole does not exist.
    DeadEnd(&'v str),
    /// Another network or machine.
    Unclear(&'v str),
    /// A NAT gateway that leads to other networks only.
    Private(&'v str),
    /// A NAT gateway that may be private.
    Unread(&'v str),
    None,
    Unknown,
}

impl Way<'_> {
    fn told(&self) -> String {
        match self {
            Self::Out(target) | Self::Unclear(target) => format!("has a route to {target}"),
            Self::Private(target) => {
                format!(
                    "has a route to {target}, a private NAT gateway, which does not lead to the \
                     internet"
                )
            }
            Self::Unread(target) => {
                format!("has a route to {target}, a NAT gateway that cannot be seen")
            }
            Self::DeadEnd(target) if target.starts_with("igw-") => {
                format!("has a route to {target} only, and a function has no public address")
            }
            Self::DeadEnd(target) => format!("has a route to {target}, which does not exist"),
            Self::None => "has no default route".to_owned(),
            Self::Unknown => "has a route table that cannot be seen".to_owned(),
        }
    }
}

fn way<'v>(vpc: &'v Vpc, tables: &'v [RouteTable], subnet: &String) -> Way<'v> {
    let Some(table) = table_of(tables, subnet) else { return Way::Unknown };
    let mut way = Way::None;
    for route in &table.routes {
        let target = route.target.as_str();
        let kind = target.split('-').next().unwrap_or_default();
        let (is_ipv4, is_ipv6) = match route.destination.as_deref() {
            Some("0.0.0.0/0") => (true, false),
            Some("::/0") => (false, true),
            _ => (false, false),
        };
        let usable = is_ipv4 || (is_ipv6 && vpc.has_ipv6);
        way = match kind {
            // A gateway endpoint is for S3 and DynamoDB, and its destination is a prefix list.
            "vpce" if route.destination.is_none() => continue,
            "nat" if is_ipv4 && route.is_active => match by_nat_gateway(vpc, target) {
                out @ Way::Out(_) => return out,
                other => other,
            },
            "eigw" if usable && route.is_active => return Way::Out(target),
            "local" | "eigw" => continue,
            "igw" if is_ipv6 && !vpc.has_ipv6 => continue,
            "igw" if !is_ipv6 => match way {
                Way::None => Way::DeadEnd(target),
                other => other,
            },
            _ if !route.is_active => match way {
                Way::None if is_ipv4 => Way::DeadEnd(target),
                other => other,
            },
            // A route to a part of all addresses may lead to an endpoint in another VPC.
            _ => Way::Unclear(target),
        };
    }
    way
}

fn by_nat_gateway<'v>(vpc: &'v Vpc, target: &'v str) -> Way<'v> {
    let mut gateways = vpc.gateways.iter().flatten();
    match gateways.find(|gateway| gateway.id == target) {
        Some(NatGateway { is_public: true, .. }) => Way::Out(target),
        Some(_) => Way::Private(target),
        None => Way::Unread(target),
    }
}

fn remedies(vpc: &Vpc, region: &str, missing: &[&str]) -> Vec<String> {
    let (id, subnets) = (&vpc.id, vpc.subnets.join(" "));
    let create = |service: &&str| {
        if *service == DYNAMODB {
            return format!(
                "aws ec2 create-vpc-endpoint --region {region} --vpc-id {id} --vpc-endpoint-type \
                 Gateway --service-name com.amazonaws.{region}.{service} --route-table-ids TABLES, \
                 with the route tables of {subnets}"
            );
        }
        format!(
            "aws ec2 create-vpc-endpoint --region {region} --vpc-id {id} --vpc-endpoint-type \
             Interface --service-name com.amazonaws.{region}.{service} --private-dns-enabled \
             --subnet-ids {subnets} --security-group-ids GROUP, with a group that admits port 443 \
             from the function"
        )
    };
    let show = format!(
        "aws ec2 describe-route-tables --region {region} --filters Name=vpc-id,Values={id} shows \
         the routes; a default route to a public NAT gateway is enough"
    );
    missing.iter().map(create).chain([show]).collect()
}
