#!/usr/bin/env python3
"""Writes provider_schema.json: what Terraform's AWS provider knows of the resources in infra/terraform.

    tests/terraform/provider_schema.py

The source is the npm package PACKAGE, which is generated from the provider's own schema. It has 46 MB,
so the tests use the file that this program writes. Run it again for a new resource or a newer provider.
"""

import io
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@cdktn/provider-aws@25.7.0"
ROOT = Path(__file__).resolve().parent.parent.parent


def main():
    used = sorted({
        (kind, name)
        for file in (ROOT / "infra/terraform").glob("*.tf")
        for kind, name in re.findall(r'^(resource|data) "(\w+)"', file.read_text(), re.M)
    })
    with tempfile.TemporaryDirectory() as directory:
        pack = ["npm", "pack", "--silent", "--pack-destination", directory, PACKAGE]
        name = subprocess.run(pack, check=True, capture_output=True, text=True).stdout.split()[-1]
        package = tarfile.open(fileobj=io.BytesIO((Path(directory) / name).read_bytes()))
    schema = {"provider": None, "package": PACKAGE, "resource": {}, "data": {}}
    for kind, name in used:
        folder = f"data-{name}" if kind == "data" else name.removeprefix("aws_")
        folder = folder.replace("_", "-")
        code, types = (package.extractfile(f"package/lib/{folder}/index.{end}").read().decode() for end in ("js", "d.ts"))
        schema["provider"] = re.search(r"providerVersion: '([\d.]+)'", code)[1]
        schema[kind][name] = described(code, types)
    text = json.dumps(schema, indent=1, sort_keys=True)
    (ROOT / "tests/terraform/provider_schema.json").write_text(text + "\n")


def described(code, types):
    """The arguments, the nested blocks, and the attributes that an expression may name."""
    required = {
        interface: set(re.findall(r"readonly (\w+):", body))
        for interface, body in re.findall(r"^export interface (\w+)[^{]*\{(.*?)^\}", types, re.M | re.S)
    }
    functions = dict(re.findall(r"^function (\w+ToHclTerraform)\(struct\) \{(.*?)^\}", code, re.M | re.S))
    interfaces = {name[0].lower() + name[1:]: keys for name, keys in required.items()}
    top = next(name for name in required if name.endswith("Config") and f"extends cdktn.TerraformMetaArguments" in
               re.search(rf"^export interface {name}\b[^{{]*\{{", types, re.M)[0])
    body = re.search(r"synthesizeHclAttributes\(\) \{(.*?)^    \}", code, re.M | re.S)
    result = members(body[1] if body else "", required[top], functions, interfaces)
    resource = code[re.search(r"^class \w+ extends cdktn\.Terraform(Resource|DataSource) ", code, re.M).start():]
    result["attributes"] = sorted(set(re.findall(r"get\w+Attribute\('(\w+)'\)", resource)))
    return result


def members(body, required, functions, interfaces):
    """The members of a resource or block, from the code that writes them as HCL."""
    result = {"arguments": {}, "blocks": {}, "required": []}
    for name, value, is_block, kind, storage in re.findall(
        r"^ +(\w+): \{\s+value: (.*?),\s+isBlock: (\w+),\s+type: \"(\w+)\",\s+storageClassType: \"(\w+)\",", body, re.M | re.S
    ):
        if re.sub(r"_(\w)", lambda match: match[1].upper(), name) in required:
            result["required"].append(name)
        if is_block == "false":
            result["arguments"][name] = storage
            continue
        function = re.search(r"(\w+ToHclTerraform)(?=[(,])(?<!MapperHcl)", value.replace("cdktn.listMapperHcl(", ""))[1]
        nested = function.removesuffix("ToHclTerraform")
        result["blocks"][name] = members(functions[function], interfaces.get(nested, set()), functions, interfaces)
    return result


if __name__ == "__main__":
    main()
