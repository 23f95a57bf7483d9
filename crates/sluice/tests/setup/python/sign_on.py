"""A browser that signs in at an identity provider: begun by the server, at the provider, and back."""

import sys
from urllib.parse import parse_qs, urlparse

import requests

url, user = sys.argv[1:]


def begun():
    """A browser that has been at the provider, and the address that it is sent back to."""
    browser = requests.Session()
    start = browser.get(f"{url}/api/web/oidc/start", allow_redirects=False)
    assert start.status_code == 303, (start.status_code, start.text)
    asked = parse_qs(urlparse(start.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"] and asked["response_type"] == ["code"], asked
    assert asked["state"] and asked["nonce"] and asked["code_challenge"], asked
    back = browser.post(start.headers["location"], data={"sub": user}, allow_redirects=False)
    assert back.status_code in (302, 303), (back.status_code, back.text)
    return browser, back.headers["location"]


assert requests.get(f"{url}/api/web/oidc").json()["start"] == "/api/web/oidc/start"
# Another browser cannot end what this one began, nor can this one afterwards.
browser, back = begun()
for who in (requests.Session(), browser):
    assert who.get(back, allow_redirects=False).status_code == 403
# A state of nobody's, and a code of nobody's.
browser, back = begun()
state = parse_qs(urlparse(back).query)["state"][0]
assert browser.get(back.replace(state, "0" * 64), allow_redirects=False).status_code == 403
browser, back = begun()
code = parse_qs(urlparse(back).query)["code"][0]
wrong = browser.get(back.replace(code, "wrong"), allow_redirects=False)
assert wrong.status_code == 502 and "wrong" not in wrong.text, (wrong.status_code, wrong.text)

browser, back = begun()
signed = browser.get(back, allow_redirects=False)
assert signed.status_code == 303 and signed.headers["location"] == "/", (signed.status_code, signed.text)
cookie = signed.headers["set-cookie"]
assert "HttpOnly" in cookie and "SameSite=Strict" in cookie, cookie
session = browser.get(f"{url}/api/web/session")
assert session.json()["user"] == user and session.json()["role"] == "user", session.text
assert browser.get(back, allow_redirects=False).status_code == 403, "a second time"
print("ok")
