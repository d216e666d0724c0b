"""The parts of a binary: its bill of materials, and the licences of its dependencies.

`cargo tree` names the parts, since it alone knows the features of one package. Tools that read the
metadata of the whole workspace would count the embedded SQS as a part of the Lambda.
"""

import functools
import hashlib
import json
import re
import subprocess
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


@functools.cache
def packages():
    """Every package that Cargo.lock names, by name and version."""
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1"))
    return {(package["name"], package["version"]): package for package in metadata["packages"]}


@functools.cache
def tree(package, target, edges):
    """Each part with the parts that it needs. The first one is the package itself."""
    lines = output(
        *("cargo", "tree", "--locked", "--package", package, "--target", target, "--edges", edges),
        *("--prefix", "depth", "--format", " {p}"),
    )
    parts, path = {}, []
    for depth, name, version in re.findall(r"^(\d+) (\S+) v(\S+)", lines, re.MULTILINE):
        part = (name, version)
        parts.setdefault(part, [])
        del path[int(depth) :]
        if path and part not in parts[path[-1]]:
            parts[path[-1]].append(part)
        path.append(part)
    return parts


def linked(package, target):
    """The parts that the binary contains, without those that only ran during the build."""
    return tree(package, target, "normal,no-proc-macro")


def cyclonedx(package, target, binary):
    """The bill of materials as JSON. Parts that only ran during the build have the scope "excluded"."""
    from cyclonedx.builder.this import this_component
    from cyclonedx.factory.license import LicenseFactory
    from cyclonedx.model import HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    parts, contained = tree(package, target, "normal,build"), linked(package, target)
    components = {}
    for place, (name, version) in enumerate(parts):
        licence, checksum = packages()[name, version]["license"], checksums[name, version]
        purl = PackageURL("cargo", None, name, version)
        components[name, version] = Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY if place else ComponentType.APPLICATION,
            purl=purl,
            bom_ref=str(purl),
            # Some old packages write "MIT/Apache-2.0".
            licenses=[LicenseFactory().make_from_string(licence.replace("/", " OR "))] if licence else None,
            hashes=[HashType.from_composite_str(f"sha256:{checksum}")] if checksum else None,
            scope=None if (name, version) in contained else ComponentScope.EXCLUDED,
        )
    main, *_ = components.values()
    digest = hashlib.sha256(binary).hexdigest()
    main.hashes = [HashType.from_composite_str(f"sha256:{digest}")]
    main.properties = [Property(name="target", value=target)]
    bom = Bom(components=[component for component in components.values() if component is not main])
    # Nothing of the time of the build, so that the same binary has the same bill.
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, digest)
    bom.metadata.timestamp = datetime.fromtimestamp(int(output("git", "log", "-1", "--format=%ct")), UTC)
    bom.metadata.component = main
    bom.metadata.tools.components.add(this_component())
    for part, needed in parts.items():
        bom.register_dependency(components[part], [components[need] for need in needed])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def licence_texts(package, target):
    """The licence and notice files of each dependency in the binary, each text once."""
    names, without = {}, []
    for name, version in sorted(linked(package, target)):
        found = packages()[name, version]
        if not found["source"]:
            continue  # Of this project.
        directory = Path(found["manifest_path"]).parent
        texts = [path for path in sorted(directory.iterdir()) if re.match(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", path.name, re.IGNORECASE) and path.is_file()]
        for path in texts:
            names.setdefault(path.read_text(errors="replace").strip(), []).append(f"{name} {version}")
        if not texts:
            without.append(f"{name} {version}: {found['license']}, by {', '.join(found['authors']) or 'unnamed authors'}\n")
    blocks = [f"{', '.join(dict.fromkeys(users))}\n\n{text}\n" for text, users in names.items()]
    if without:
        blocks.append("Packages without a licence file:\n\n" + "".join(without))
    return f"\n{'-' * 80}\n\n".join(blocks)
