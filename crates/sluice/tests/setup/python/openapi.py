"""The OpenAPI document on standard input is one."""

import json
import sys

from openapi_spec_validator import validate

document = json.load(sys.stdin)
validate(document)
print(len(document["paths"]))
