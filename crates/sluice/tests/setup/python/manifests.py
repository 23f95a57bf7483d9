"""Holds each manifest of a file to the schema of Kubernetes, without keys that it does not have, in several versions.

    manifests.py FILE     prints how many there are
"""

import json
import sys

import kubernetes_validate

VERSIONS = ["1.28", "1.32", kubernetes_validate.latest_version()]

with open(sys.argv[1]) as file:
    manifests = json.load(file)
for manifest in manifests:
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)
print(len(manifests))
