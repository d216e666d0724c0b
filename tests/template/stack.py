"""The template, as SAM and CloudFormation read it."""

import functools
import json
import os
import re
import tempfile
from pathlib import Path

import yaml
from cfnlint import api as cfnlint
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

os.environ["AWS_DEFAULT_REGION"] = "us-east-1"

ROOT = Path(__file__).resolve().parent.parent.parent

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders/api-AbCdEf"
PARAMETER = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TARGET = "https://api.example.com/orders"
TARGET_FUNCTION = "arn:aws:lambda:eu-west-1:210987654321:function:orders:live"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
SUBNETS = "subnet-0a1b2c3d4e5f60718,subnet-1a2b3c4d5e6f70819"
GROUP = "sg-0a1b2c3d4e5f60718"
BOUNDARY = "arn:aws:iam::123456789012:policy/teams/boundary"

# A value for every parameter that adds an optional part to the template.
EVERYTHING = {
    "TargetFunction": TARGET_FUNCTION,
    "SharedTable": "dynamodb",
    "DeadLetterMode": "direct",
    "ReserveConcurrency": "true",
    "SubnetIds": SUBNETS,
    "SecurityGroupIds": GROUP,
    "PermissionsBoundaryArn": BOUNDARY,
    "SecretArns": SECRET,
    "ParameterArns": PARAMETER,
    "SecretKmsKeyArn": KEY.replace("1234abcd", "5678abcd"),
    "KmsKeyArn": KEY,
    "OtherKmsKeyArns": KEY.replace("1234abcd", "9876abcd"),
    "TopicArn": TOPIC,
    "TopicOperations": "create,update",
    "AlarmEmail": "operators@example.com",
    "AlarmTopicArn": TOPIC.replace("orders", "pager"),
}


class NoManagedPolicies:
    def load(self):
        return {}


def template():
    return yaml_parse((ROOT / "template.yaml").read_text())


def included(node):
    """The template with the files that it includes, as CloudFormation's transform AWS::Include inserts them."""
    match node:
        case {"Fn::Transform": {"Name": "AWS::Include", "Parameters": {"Location": path}}, **others} if not others:
            # Without the short forms, such as !Sub: the transform does not know them.
            return yaml.safe_load((ROOT / path).read_text())
        case dict():
            return {name: included(member) for name, member in node.items()}
        case list():
            return [included(member) for member in node]
        case _:
            return node


def translated(template, parameters=None):
    """The CloudFormation that SAM makes of it with these values of parameters."""
    template = included(template)
    function = template["Resources"]["Function"]["Properties"]
    if function["CodeUri"] == ".":
        function["CodeUri"] = "s3://bucket/key"
    return transform(template, parameters or {}, NoManagedPolicies())


@functools.cache
def cloudformation():
    """The template's CloudFormation. Do not change it."""
    return translated(template())


def lint_file(path, *ignored, region="us-east-1"):
    """cfn-lint's findings."""
    config = cfnlint.ManualArgs(regions=[region], ignore_checks=list(ignored))
    return "\n".join(map(str, cfnlint.lint_file(Path(path), config)))


def lint(template, *ignored):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(template, file)
        file.flush()
        return lint_file(file.name, *ignored)


NO_VALUE = object()


def reading(template, **given):
    """A function that evaluates a node with these parameters, as far as possible before deployment."""
    parameters = {}
    for name, parameter in template["Parameters"].items():
        text = str(given.pop(name, parameter.get("Default", "")))
        match parameter["Type"]:
            case "CommaDelimitedList":
                parameters[name] = text.split(",")
            case "Number":
                parameters[name] = int(text)
            case _:
                parameters[name] = text
    assert not given, f"no parameters of the template: {given}"

    # A text with a pseudo parameter, such as the account, is known only at the deployment.
    def text_of(text):
        return {"Fn::Sub": text} if "${" in text else text

    def raw(text):
        return text["Fn::Sub"] if isinstance(text, dict) else text

    def value(node):
        match node:
            case {"Ref": "AWS::NoValue"}:
                return NO_VALUE
            case {"Ref": name} if name in parameters:
                return parameters[name]
            case {"Fn::If": [condition, yes, no]}:
                return value(yes if value(template["Conditions"][condition]) else no)
            case {"Fn::Not": [condition]}:
                return not value(condition)
            case {"Condition": str(name), **others} if not others:
                return value(template["Conditions"][name])
            case {"Fn::Or": conditions}:
                return any(map(value, conditions))
            case {"Fn::And": conditions}:
                return all(map(value, conditions))
            case {"Fn::Equals": [one, other]}:
                return str(value(one)) == str(value(other))
            case {"Fn::Contains": [texts, text]}:
                return str(value(text)) in texts
            case {"Fn::Sub": str(text)}:
                return text_of(re.sub(r"\$\{(\w+)\}", lambda name: str(parameters.get(name[1], name[0])), text))
            case {"Fn::Join": [separator, texts]}:
                return text_of(separator.join(map(raw, value(texts))))
            case {"Fn::Split": [separator, text]}:
                return [text_of(part) for part in raw(value(text)).split(separator)]
            case {"Fn::Select": [place, list() | {"Fn::Split": _} as items]}:
                return value(items)[place]
            case {"Fn::FindInMap": [name, key, member]}:
                return template["Mappings"][name][value(key)][member]
            case dict():
                members = {name: value(member) for name, member in node.items()}
                return {name: member for name, member in members.items() if member is not NO_VALUE}
            case list():
                return [member for member in map(value, node) if member is not NO_VALUE]
            case _:
                return node

    return value


def made(template, section, **given):
    """The resources or outputs of a translated template with these parameters."""
    value = reading(template, **given)
    entries = template[section].items()
    return {
        name: value({key: member for key, member in entry.items() if key != "Condition"})
        for name, entry in entries
        if "Condition" not in entry or value(template["Conditions"][entry["Condition"]])
    }


def deployed(template, **given):
    return made(template, "Resources", **given)


def refusals(template, **given):
    """The descriptions of the rules that refuse these parameters, with a URL as target unless another one is given."""
    value = reading(template, **{"TargetUrl": TARGET, **given})
    return [
        assertion["AssertDescription"]
        for rule in template["Rules"].values()
        if "RuleCondition" not in rule or value(rule["RuleCondition"])
        for assertion in rule["Assertions"]
        if not value(assertion["Assert"])
    ]


def references(node):
    """The names that a node refers to: resources, parameters, pseudo parameters."""
    match node:
        case {"Ref": name}:
            yield name
        case {"Fn::GetAtt": [name, *_]}:
            yield name
        case {"Fn::Sub": str(text)}:
            yield from (name.split(".")[0] for name in re.findall(r"\$\{([^!}]+)\}", text))
        case dict():
            for member in node.values():
                yield from references(member)
        case list():
            for member in node:
                yield from references(member)
