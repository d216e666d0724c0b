//! The resources and outputs for one set of variables.

use std::collections::BTreeMap;

use hcl::eval::{Context, Evaluate};
use hcl::expr::{Expression, ObjectKey};
use hcl::{Block, Body, Map, Value};
use serde_json::{Value as Json, json};

use crate::functions;
use crate::module::{Module, address, attribute, name, nested};

type Outcome<T> = Result<T, String>;

/// The key of each instance of a resource: null without `count` and `for_each`.
type Keys = Vec<(Value, Value)>;

pub fn plan(module: &Module, schema: &Json, data: &Json, given: &Json) -> Outcome<Json> {
    let variables = variables(module, given)?;
    let mut context = Context::new();
    functions::declare(&mut context);
    context.declare_var("var", variables);
    context.declare_var("data", from_json(data));
    let directory = module.directory.to_string_lossy().into_owned();
    context.declare_var(
        "path",
        Value::Object([("module".to_owned(), directory.into())].into_iter().collect()),
    );

    let mut refusals = vec![];
    for variable in &module.variables {
        refused(nested(&variable.body, "validation"), &context, &mut refusals)?;
    }
    if !refusals.is_empty() {
        return Ok(json!({ "refusals": refusals }));
    }
    let instances = declare_all(module, schema, &mut context)?;
    let mut resources = BTreeMap::new();
    for resource in managed(module) {
        let address = address(resource);
        for (key, value) in &instances[&address] {
            let context = &with_key(&context, key, value);
            let lifecycle = nested(&resource.body, "lifecycle").next();
            let preconditions = lifecycle.into_iter().flat_map(|body| nested(body, "precondition"));
            refused(preconditions, context, &mut refusals)?;
            let is_true = |name| {
                lifecycle.and_then(|body| attribute(body, name)) == Some(&Expression::Bool(true))
            };
            resources.insert(
                format!("{address}{}", index(key)),
                json!({
                    "type": resource.labels()[0].as_str(),
                    "prevent_destroy": is_true("prevent_destroy"),
                    "create_before_destroy": is_true("create_before_destroy"),
                    "values": members(&resource.body, context, true).map_err(|e| format!("{address}: {e}"))?,
                }),
            );
        }
    }
    let outputs: Outcome<BTreeMap<_, _>> = module
        .outputs
        .iter()
        .map(|output| Ok((name(output), functions::json(&value(&output.body, "value", &context)?))))
        .collect();
    Ok(json!({ "refusals": refusals, "resources": resources, "outputs": outputs? }))
}

fn managed(module: &Module) -> impl Iterator<Item = &Block> {
    module.resources.iter().filter(|block| block.identifier() == "resource")
}

/// The values of all variables.
fn variables(module: &Module, given: &Json) -> Outcome<Value> {
    let given = given.as_object().ok_or("the variables are no object")?;
    if let Some(unknown) =
        given.keys().find(|key| module.variables.iter().all(|one| name(one) != *key))
    {
        return Err(format!("the module has no variable {unknown}"));
    }
    let mut values = Map::new();
    for variable in &module.variables {
        let name = name(variable);
        let default = attribute(&variable.body, "default").map(plain).transpose()?;
        let nullable = attribute(&variable.body, "nullable") != Some(&Expression::Bool(false));
        let own = given.get(name).map(from_json).filter(|value| nullable || !value.is_null());
        let value = own.or(default).ok_or_else(|| format!("the variable {name} is required"))?;
        let typed = attribute(&variable.body, "type")
            .ok_or_else(|| format!("the variable {name} has no type"))?;
        let value = if value.is_null() {
            value
        } else {
            of_type(value, typed).map_err(|e| format!("the variable {name}: {e}"))?
        };
        values.insert(name.to_owned(), value);
    }
    Ok(Value::Object(values))
}

/// The value, with the defaults of optional members; an error if it does not have the type.
fn of_type(value: Value, typed: &Expression) -> Outcome<Value> {
    let wrong = |value: &Value| Err(format!("{value} is no {typed}"));
    match (typed, value) {
        (Expression::Variable(kind), value) => match (kind.as_str(), &value) {
            ("string", Value::String(_))
            | ("number", Value::Number(_))
            | ("bool", Value::Bool(_)) => Ok(value),
            _ => wrong(&value),
        },
        (Expression::FuncCall(call), value) => match (call.name.name.as_str(), value) {
            ("list", Value::Array(items)) => Ok(Value::Array(
                items
                    .into_iter()
                    .map(|item| of_type(item, &call.args[0]))
                    .collect::<Outcome<_>>()?,
            )),
            ("map", Value::Object(members)) => {
                let typed = members
                    .into_iter()
                    .map(|(name, member)| Ok((name, of_type(member, &call.args[0])?)));
                Ok(Value::Object(typed.collect::<Outcome<_>>()?))
            }
            ("object", Value::Object(members)) => object(members, &call.args[0]),
            (_, value) => wrong(&value),
        },
        (_, value) => wrong(&value),
    }
}

fn object(mut given: Map<String, Value>, typed: &Expression) -> Outcome<Value> {
    let Expression::Object(typed) = typed else {
        return Err(format!("{typed} is no type of an object"));
    };
    let mut members = Map::new();
    for (key, typed) in typed {
        let ObjectKey::Identifier(key) = key else { return Err(format!("{key} is no name")) };
        let (typed, default) = match typed {
            Expression::FuncCall(call) if call.name.name.as_str() == "optional" => {
                (&call.args[0], Some(call.args.get(1).map_or(Ok(Value::Null), plain)?))
            }
            typed => (typed, None),
        };
        let value = match given.swap_remove(key.as_str()) {
            Some(value) => of_type(value, typed)?,
            None => default.ok_or_else(|| format!("{key} is required"))?,
        };
        members.insert(key.to_string(), value);
    }
    match given.keys().next() {
        Some(unknown) => Err(format!("{unknown} is no member")),
        None => Ok(Value::Object(members)),
    }
}

/// Declares locals and resources. First the resources whose number depends on variables only; then the
/// rest, in the order in which they become computable.
fn declare_all(
    module: &Module,
    schema: &Json,
    context: &mut Context,
) -> Outcome<BTreeMap<String, Keys>> {
    let mut locals = Map::new();
    let mut instances = BTreeMap::new();
    for phase in 0..3 {
        loop {
            let before = (locals.len(), instances.len());
            for (name, expression) in module
                .locals
                .iter()
                .filter(|(name, _)| !locals.contains_key(name))
                .collect::<Vec<_>>()
            {
                if let Ok(value) = expression.evaluate(context) {
                    locals.insert(name.clone(), value);
                }
            }
            context.declare_var("local", Value::Object(locals.clone()));
            for resource in managed(module) {
                let address = address(resource);
                // While phase 0 lasts, no expression can name a resource, so no count can depend on one.
                let own = if attribute(&resource.body, "for_each").is_none() { 0 } else { 2 };
                if let (true, false, Ok(keys)) =
                    (phase == own, instances.contains_key(&address), keys(&resource.body, context))
                {
                    instances.insert(address, keys);
                }
            }
            if phase > 0 {
                declare_resources(module, schema, &instances, context);
            }
            if before == (locals.len(), instances.len()) {
                break;
            }
        }
    }
    if let Some((name, expression)) =
        module.locals.iter().find(|(name, _)| !locals.contains_key(name))
    {
        return Err(format!(
            "local.{name}: {}",
            expression.evaluate(context).expect_err("it has no value")
        ));
    }
    match managed(module).find(|resource| !instances.contains_key(&address(resource))) {
        Some(resource) => {
            let why = keys(&resource.body, context).err();
            let why = why.unwrap_or_else(|| "its count depends on a resource".to_owned());
            Err(format!("{}: {why}", address(resource)))
        }
        None => Ok(instances),
    }
}

fn keys(body: &Body, context: &Context) -> Outcome<Keys> {
    if attribute(body, "count").is_some() {
        let count = value(body, "count", context)?.as_u64().ok_or("count is no number")?;
        return Ok((0..count).map(|index| (Value::from(index), Value::from(index))).collect());
    }
    if attribute(body, "for_each").is_none() {
        return Ok(vec![(Value::Null, Value::Null)]);
    }
    match value(body, "for_each", context)? {
        Value::Object(members) => {
            Ok(members.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
        }
        other => Err(format!("for_each is {other}, and must be a map")),
    }
}

/// Each resource with the attributes that an expression may name.
fn declare_resources(
    module: &Module,
    schema: &Json,
    instances: &BTreeMap<String, Keys>,
    context: &mut Context,
) {
    let mut types: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for resource in managed(module) {
        let (kind, address) = (resource.labels()[0].as_str(), address(resource));
        let Some(keys) = instances.get(&address) else { continue };
        let attributes = schema["resource"][kind]["attributes"].as_array();
        let one = |key: &Value| -> Value {
            let names = attributes.into_iter().flatten().filter_map(Json::as_str);
            let symbol = |name: &str| Value::from(format!("<{address}{}.{name}>", index(key)));
            Value::Object(names.map(|name| (name.to_owned(), symbol(name))).collect())
        };
        let all = if attribute(&resource.body, "count").is_some() {
            keys.iter().map(|(key, _)| one(key)).collect::<Vec<_>>().into()
        } else if attribute(&resource.body, "for_each").is_some() {
            Value::Object(
                keys.iter()
                    .map(|(key, _)| (key.as_str().unwrap_or_default().to_owned(), one(key)))
                    .collect(),
            )
        } else {
            one(&Value::Null)
        };
        types.entry(kind).or_default().insert(name(resource).to_owned(), all);
    }
    for (kind, resources) in types {
        context.declare_var(kind, Value::Object(resources));
    }
}

fn index(key: &Value) -> String {
    if key.is_null() { String::new() } else { format!("[{key}]") }
}

fn with_key<'a>(context: &'a Context, key: &Value, value: &Value) -> Context<'a> {
    let mut own = context.clone();
    let pair = [("key".to_owned(), key.clone()), ("value".to_owned(), value.clone())];
    own.declare_var("each", Value::Object(pair.into_iter().collect()));
    own.declare_var(
        "count",
        Value::Object([("index".to_owned(), key.clone())].into_iter().collect()),
    );
    own
}

/// Arguments, and blocks as lists. Null is an argument that is not given.
fn members(body: &Body, context: &Context, top: bool) -> Outcome<Json> {
    let mut found = serde_json::Map::new();
    for attribute in body.attributes() {
        let name = attribute.key();
        if !(top && ["count", "for_each", "depends_on"].contains(&name)) {
            let value = functions::json(&value(body, name, context)?);
            if !value.is_null() {
                found.insert(name.to_owned(), value);
            }
        }
    }
    for block in body.blocks().filter(|block| block.identifier() != "lifecycle") {
        let (name, blocks) = if block.identifier() == "dynamic" {
            (name(block), dynamic(block, context)?)
        } else {
            (block.identifier(), vec![members(&block.body, context, false)?])
        };
        if !blocks.is_empty() {
            let list = found.entry(name).or_insert_with(|| json!([]));
            list.as_array_mut().expect("a list of blocks").extend(blocks);
        }
    }
    Ok(Json::Object(found))
}

fn dynamic(block: &Block, context: &Context) -> Outcome<Vec<Json>> {
    let iterator = name(block);
    let content = nested(&block.body, "content").next().ok_or("a dynamic block has no content")?;
    let pairs: Keys = match value(&block.body, "for_each", context)? {
        Value::Array(items) => {
            items.into_iter().enumerate().map(|(index, item)| (Value::from(index), item)).collect()
        }
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (Value::from(key), value)).collect()
        }
        other => return Err(format!("for_each is {other}, and must be a list or a map")),
    };
    pairs
        .into_iter()
        .map(|(key, value)| {
            let mut own = context.clone();
            let pair = [("key".to_owned(), key), ("value".to_owned(), value)];
            own.declare_var(iterator, Value::Object(pair.into_iter().collect()));
            members(content, &own, false)
        })
        .collect()
}

/// Adds the messages of the conditions that do not hold.
fn refused<'a>(
    conditions: impl Iterator<Item = &'a Body>,
    context: &Context,
    refusals: &mut Vec<String>,
) -> Outcome<()> {
    for condition in conditions {
        // The message is evaluated in any case, so that a mistake in it shows.
        let message = value(condition, "error_message", context)?;
        match value(condition, "condition", context)? {
            Value::Bool(true) => {}
            Value::Bool(false) => refusals.push(message.as_str().unwrap_or_default().to_owned()),
            other => return Err(format!("the condition is {other}, and must be true or false")),
        }
    }
    Ok(())
}

fn value(body: &Body, name: &str, context: &Context) -> Outcome<Value> {
    let expression = attribute(body, name).ok_or_else(|| format!("{name} is missing"))?;
    expression.evaluate(context).map_err(|e| format!("{name}: {e}"))
}

/// The value of an expression without references.
fn plain(expression: &Expression) -> Outcome<Value> {
    expression.evaluate(&Context::new()).map_err(|e| e.to_string())
}

pub fn from_json(json: &Json) -> Value {
    serde_json::from_value(json.clone()).expect("HCL has all values of JSON")
}
