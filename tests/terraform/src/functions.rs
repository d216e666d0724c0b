//! The functions of Terraform that the module uses.

use hcl::Value;
use hcl::eval::{Context, FuncArgs, FuncDef, ParamType};
use regex_lite::Regex;

type Outcome = Result<Value, String>;

pub fn declare(context: &mut Context) {
    use ParamType::{Any, Bool, Number, String};
    let list = || ParamType::array_of(Any);
    let object = || ParamType::object_of(Any);
    let mut simple = |name: &str, parameters: Vec<ParamType>, function| {
        context.declare_func(name, FuncDef::new(function, parameters));
    };
    simple("alltrue", vec![ParamType::array_of(Bool)], |args| {
        Ok(Value::from(items(&args[0]).iter().all(|item| item == &Value::from(true))))
    });
    simple("compact", vec![ParamType::array_of(ParamType::nullable(String))], |args| {
        let kept =
            items(&args[0]).iter().filter(|item| !item.is_null() && item.as_str() != Some(""));
        Ok(kept.cloned().collect::<Vec<_>>().into())
    });
    simple("contains", vec![list(), Any], |args| Ok(items(&args[0]).contains(&args[1]).into()));
    simple("file", vec![String], |args| {
        let path = text(&args[0]);
        std::fs::read_to_string(path).map(Value::from).map_err(|e| format!("{path}: {e}"))
    });
    // The package does not exist when the tests run: each path of a zip file counts as one.
    simple("filebase64sha256", vec![String], |args| {
        Ok(format!("<SHA-256 of {}>", text(&args[0])).into())
    });
    simple("fileexists", vec![String], |args| match text(&args[0]) {
        "" => Err("\".\" is a directory, not a file".into()),
        path => Ok(path.ends_with(".zip").into()),
    });
    simple("floor", vec![Number], |args| Ok(number(args[0].as_f64().expect("a number").floor())));
    simple("join", vec![String, ParamType::array_of(String)], |args| {
        Ok(items(&args[1]).iter().map(text).collect::<Vec<_>>().join(text(&args[0])).into())
    });
    simple("jsondecode", vec![String], |args| {
        let found = serde_json::from_str(text(&args[0])).map_err(|e| e.to_string())?;
        Ok(crate::plan::from_json(&found))
    });
    simple("jsonencode", vec![Any], |args| Ok(json(&args[0]).to_string().into()));
    simple("keys", vec![object()], |args| {
        let members = args[0].as_object().expect("an object");
        let mut names: Vec<_> = members.keys().cloned().collect();
        names.sort_unstable();
        Ok(names.into())
    });
    simple("length", vec![Any], |args| match &args[0] {
        Value::Array(items) => Ok(items.len().into()),
        Value::Object(members) => Ok(members.len().into()),
        Value::String(text) => Ok(text.chars().count().into()),
        other => Err(format!("{other} has no length")),
    });
    simple("lookup", vec![object(), String, Any], |args| {
        let members = args[0].as_object().expect("an object");
        Ok(members.get(text(&args[1])).unwrap_or(&args[2]).clone())
    });
    simple("nonsensitive", vec![Any], |args| Ok(args[0].clone()));
    simple("one", vec![list()], |args| match items(&args[0]) {
        [] => Ok(Value::Null),
        [one] => Ok(one.clone()),
        _ => Err("the list has several items".into()),
    });
    simple("regex", vec![String, String], |args| {
        let found = regex(text(&args[0]))?.find(text(&args[1])).map(|found| found.as_str().into());
        found.ok_or_else(|| "the text does not match".into())
    });
    // Each match is a text, or the list of its groups.
    simple("regexall", vec![String, String], |args| {
        let pattern = regex(text(&args[0]))?;
        let of = |group: Option<regex_lite::Match>| {
            group.map_or(Value::Null, |found| found.as_str().into())
        };
        let all = pattern.captures_iter(text(&args[1])).map(|found| match pattern.captures_len() {
            1 => of(found.get(0)),
            _ => found.iter().skip(1).map(of).collect::<Vec<_>>().into(),
        });
        Ok(all.collect::<Vec<_>>().into())
    });
    simple("replace", vec![String, String, String], replace);
    simple("slice", vec![list(), Number, Number], |args| {
        let [from, to] = [1, 2].map(|at| args[at].as_u64().map(|at| at as usize));
        let part = from.zip(to).and_then(|(from, to)| items(&args[0]).get(from..to));
        part.map(|part| part.to_vec().into()).ok_or_else(|| "the list has no such part".into())
    });
    simple("split", vec![String, String], |args| {
        Ok(text(&args[1]).split(text(&args[0])).collect::<Vec<_>>().into())
    });
    simple("substr", vec![String, Number, Number], |args| {
        let [from, length] = [1, 2].map(|at| args[at].as_u64().expect("a number") as usize);
        Ok(text(&args[0]).chars().skip(from).take(length).collect::<std::string::String>().into())
    });
    simple("sum", vec![ParamType::array_of(Number)], |args| match items(&args[0]) {
        [] => Err("a sum needs a number".into()),
        numbers => Ok(number(numbers.iter().filter_map(|item| item.as_number()?.as_f64()).sum())),
    });
    simple("title", vec![String], |args| {
        let words = text(&args[0]).split(' ').map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        });
        Ok(words.collect::<Vec<_>>().join(" ").into())
    });
    simple("tostring", vec![Any], |args| match &args[0] {
        Value::String(_) | Value::Null => Ok(args[0].clone()),
        Value::Number(_) | Value::Bool(_) => Ok(args[0].to_string().into()),
        other => Err(format!("{other} is no text")),
    });
    simple("tonumber", vec![Any], |args| match &args[0] {
        Value::String(text) => {
            text.parse().map(number).map_err(|_| format!("{text:?} is no number"))
        }
        other => Ok(other.clone()),
    });
    let mut variadic = |name: &str, parameter, function| {
        context.declare_func(name, FuncDef::builder().variadic_param(parameter).build(function));
    };
    variadic("concat", list(), |args| {
        Ok(args.iter().flat_map(items).cloned().collect::<Vec<_>>().into())
    });
    variadic("merge", object(), |args| {
        let members = args.iter().filter_map(Value::as_object).flatten();
        Ok(Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect()))
    });
    variadic("max", Number, |args| Ok(extreme(&args, f64::max)));
    variadic("min", Number, |args| Ok(extreme(&args, f64::min)));
}

/// With slashes around it, the pattern is a regular expression, and `$1` in the replacement its group.
fn replace(args: FuncArgs) -> Outcome {
    let (whole, pattern, by) = (text(&args[0]), text(&args[1]), text(&args[2]));
    match pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        Some(pattern) => Ok(regex(pattern)?.replace_all(whole, by).into_owned().into()),
        None => Ok(whole.replace(pattern, by).into()),
    }
}

/// Keys in alphabetical order, as Terraform writes them.
pub fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), json(value))).collect()
        }
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation)]
            Some(float) if float.fract() == 0.0 => (float as i64).into(),
            float => float.into(),
        },
        other => serde_json::to_value(other).expect("a text, a boolean or null"),
    }
}

fn extreme(args: &FuncArgs, of: fn(f64, f64) -> f64) -> Value {
    number(args.iter().filter_map(|arg| arg.as_number()?.as_f64()).reduce(of).expect("an argument"))
}

/// Whole numbers as integers, so that they equal those in the files.
#[expect(clippy::cast_possible_truncation)]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { Value::from(value as i64) } else { Value::from(value) }
}

fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|e| format!("{pattern}: {e}"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
