#!/usr/bin/env python3
"""EC2 for tests: a proxy in front of moto's server that adds what moto lacks.

    ec2_proxy.py FOLDER MOTO SLUICE     MOTO: the address of moto's server; SLUICE: the program

It checks signatures, answers a ClientToken twice as EC2 does, sells out, throttles, hides what was made a moment ago, keeps
placement groups, tells spot prices, serves each machine's metadata service, and takes spot machines back. machine_host.py starts a
local agent for each machine.
"""

import base64
import datetime
import hashlib
import hmac
import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from machine_host import LOCK, MACHINES, Handler, address, control, interruption, note, serve, start, switch_off

MOTO = sys.argv[2]
REGION = "eu-west-1"
# Keys that stand for an error each; the others' secret is "secret".
KEYS = {"AKIAGOOD", "AKIADENIED", "AKIASKEW", "AKIAGARBAGE"}
SPOT_PRICE = "0.05"
TOKENS = {}  # ClientToken -> (what was asked, the answer)
GROUPS = set()


class Fault(Exception):
    def __init__(self, status, code, message="as the test has it"):
        super().__init__(code)
        self.status = status
        self.body = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>r</RequestID></Response>"
        )


def check_signature(headers, body):
    """Refuses what EC2 would: a key that is not known, a time that is far off, a wrong signature, another region."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/ec2/aws4_request, "
        r"SignedHeaders=([^,]+), Signature=([0-9a-f]+)",
        headers.get("Authorization", ""),
    )
    if not found:
        raise Fault(401, "AuthFailure")
    key, day, region, names, signature = found.groups()
    if key not in KEYS:
        raise Fault(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
    stamp = headers["X-Amz-Date"]
    then = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    skew = 3600 if key == "AKIASKEW" else 0
    if abs(time.time() + skew - then.timestamp()) > 300:
        raise Fault(400, "RequestExpired", "Request has expired")
    if region != REGION:
        raise Fault(401, "AuthFailure", "Credential should be scoped to a valid region")
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names.split(";"))
    digest = hashlib.sha256(body).hexdigest()
    request = f"POST\n/\n\n{lines}\n{names}\n{digest}"
    scope = f"{day}/{region}/ec2/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = b"AWS4secret"
    for part in (day, region, "ec2", "aws4_request"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    if hmac.new(secret, text.encode(), hashlib.sha256).hexdigest() != signature:
        raise Fault(403, "SignatureDoesNotMatch")
    return key


def to_moto(body, headers):
    names = ("Authorization", "X-Amz-Date", "Content-Type", "Host")
    sent = {name: headers[name] for name in names if name in headers}
    request = urllib.request.Request(MOTO + "/", data=body, headers=sent, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def answer(action, form, body, headers):
    key = check_signature(headers, body)
    now = control()
    if key == "AKIADENIED" and action == "DescribeInstanceTypes":
        raise Fault(403, "UnauthorizedOperation", "You are not authorized to perform this operation.")
    if key == "AKIAGARBAGE":
        return 200, b"<html><p>a page of something else"
    if now.get("throttle") and action in ("RunInstances", "TerminateInstances"):
        with LOCK:
            if throttled(now["throttle"]):
                raise Fault(503, "RequestLimitExceeded", "Request limit exceeded.")
    if action == "DescribeImages":
        return 200, images(form)
    if action == "DescribeSpotPriceHistory":
        return 200, spot_prices(form)
    if action == "CreatePlacementGroup":
        if form["GroupName"] in GROUPS:
            raise Fault(400, "InvalidPlacementGroup.Duplicate")
        GROUPS.add(form["GroupName"])
        note("group", name=form["GroupName"])
        return 200, b"<CreatePlacementGroupResponse><return>true</return></CreatePlacementGroupResponse>"
    if action == "RunInstances":
        return run_instances(form, body, headers, now)
    if action == "TerminateInstances":
        return terminate(form, body, headers)
    if action == "DescribeInstances" and any(
        time.time() - of["made"] < now.get("lag", 0) for of in MACHINES.values()
    ):
        return 200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"
    if action in ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume"):
        return volume(action, form, body, headers)
    return to_moto(body, headers)


def volume(action, form, body, headers):
    """A call about a disk, which moto answers; a ClientToken makes one disk."""
    token, asked = form.get("ClientToken"), {**form, "Action": ""}
    with LOCK:
        if token in TOKENS:
            before, text = TOKENS[token]
            if before != asked:
                raise Fault(400, "IdempotentParameterMismatch")
            return 200, text
        status, text = to_moto(body, headers)
        if status != 200:
            return status, text
        if token is not None:
            TOKENS[token] = (asked, text)
    id = re.search(rb"<volumeId>(vol-[0-9a-f]+)</volumeId>", text)
    id = form.get("VolumeId") or id.group(1).decode()
    zone = form.get("AvailabilityZone")
    note("disk", action=action, id=id, zone=zone, machine=form.get("InstanceId"))
    return status, text


THROTTLED = [0]


def throttled(most):
    THROTTLED[0] += 1
    return THROTTLED[0] <= most


def values(form, name):
    return [form[key] for key in sorted(form) if re.fullmatch(rf"{name}\.\d+", key)]


def images(form):
    asked = values(form, "ImageId")
    if not asked and form.get("Owner.1") == "self" and form.get("Filter.1.Value.1") == "lab image":
        asked = ["ami-test"]
    items = "".join(
        f"<item><imageId>{image}</imageId><architecture>x86_64</architecture>"
        f"<rootDeviceName>/dev/xvda</rootDeviceName></item>"
        for image in asked
        if image == "ami-test"
    )
    return f"<DescribeImagesResponse><imagesSet>{items}</imagesSet></DescribeImagesResponse>".encode()


def spot_prices(form):
    items = "".join(
        f"<item><instanceType>{name}</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{SPOT_PRICE}</spotPrice><availabilityZone>{REGION}a</availabilityZone></item>"
        for name in values(form, "InstanceType")
    )
    text = f"<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>{items}</spotPriceHistorySet>"
    return f"{text}<nextToken/></DescribeSpotPriceHistoryResponse>".encode()


def run_instances(form, body, headers, now):
    token, asked = form["ClientToken"], {**form, "Action": ""}
    with LOCK:
        if token in TOKENS:
            before, text = TOKENS[token]
            if before != asked:
                raise Fault(400, "IdempotentParameterMismatch")
            return 200, text
        if form["InstanceType"] in now.get("sold_out", []):
            note("sold_out", type=form["InstanceType"], token=token)
            raise Fault(500, "InsufficientInstanceCapacity", "There is no capacity.")
        group = form.get("Placement.GroupName")
        if group is not None and group not in GROUPS:
            raise Fault(400, "InvalidPlacementGroup.Unknown")
        status, text = to_moto(body, headers)
        if status != 200:
            return status, text
        TOKENS[token] = (asked, text)
        id = re.search(rb"<instanceId>(i-[0-9a-f]+)</instanceId>", text).group(1).decode()
        spot = form.get("InstanceMarketOptions.MarketType") == "spot"
        made = {
            "zone": form.get("Placement.AvailabilityZone"),
            "image": form["ImageId"],
            "subnet": form.get("NetworkInterface.1.SubnetId"),
            "public": form.get("NetworkInterface.1.AssociatePublicIpAddress"),
            "interface": form.get("NetworkInterface.1.InterfaceType"),
            "tags": [form[key] for key in form if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)],
        }
        note("create", id=id, token=token, type=form["InstanceType"], spot=spot, **made)
        script = base64.b64decode(form["UserData"]).decode()
        own, machines = f"http://{address()}/imds", f"http://{address()}/imds/{id}"
        start(id, script.replace(f"'{own}'", f"'{machines}'"))
    return 200, text


def terminate(form, body, headers):
    status, text = to_moto(body, headers)
    if status == 200:
        for id in values(form, "InstanceId"):
            switch_off(id)
    return status, text


def take_back(id, after):
    """The cloud takes a spot machine back some time after it has told so."""
    time.sleep(after)
    note("interrupted", id=id)
    body = urllib.parse.urlencode({"Action": "TerminateInstances", "Version": "2016-11-15", "InstanceId.1": id})
    scope = f"Credential=AKIAGOOD/20200101/{REGION}/ec2/aws4_request, SignedHeaders=host, Signature=0"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}", "Host": f"ec2.{REGION}.amazonaws.com"}
    to_moto(body.encode(), {**headers, "Content-Type": "application/x-www-form-urlencoded"})
    switch_off(id)


class Ec2(Handler):
    def do_POST(self):
        body = self.body()
        form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        try:
            status, text = answer(form.get("Action"), form, body, self.headers)
        except Fault as fault:
            status, text = fault.status, fault.body.encode()
        self.say(status, text)

    def do_PUT(self):
        self.body()
        is_token = self.path.endswith("/latest/api/token")
        self.say(200 if is_token else 404, b"token" if is_token else b"")

    def do_GET(self):
        found = re.fullmatch(r"/imds/(i-[0-9a-f]+)/latest/meta-data/spot/instance-action", self.path)
        if not found:
            return self.say(404, b"")
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            return self.say(401, b"")
        taken = interruption(found.group(1), take_back)
        if taken is None:
            return self.say(404, b"")
        self.say(200, json.dumps({"action": "terminate", "time": taken}).encode())


if __name__ == "__main__":
    serve(Ec2)
