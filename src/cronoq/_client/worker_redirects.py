"""Whether a worker may follow a redirect to another endpoint (client.md section 3). Pure.

What goes along is the token and the TLS credentials, so a server that was tricked, or a metadata value that somebody
changed on a plain connection, must not be able to draw them to a place of its choice in clear.
"""

from cronoq._client.target import parse_target
from cronoq_sansio.worker.route import Redirect


def judge(endpoint: str, *, secure: bool, token: bool, insecure_http: bool) -> Redirect:
    """What to do about an endpoint that the server named.

    `secure`: the present connection is TLS; `token`: one would go along; `insecure_http`: plain HTTP was allowed.
    """
    named = f"the server redirects to {endpoint!r}"
    scheme, separator, place = endpoint.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in ("http", "https"):
        return Redirect(endpoint, f"{named}, which is neither http://host:port nor https://host:port")
    if "@" in place:
        return Redirect(endpoint, f"{named}: user names do not belong there")
    try:
        target = parse_target(f"{scheme}://{place}")
    except ValueError as error:
        return Redirect(endpoint, f"{named}: {error}")
    if scheme == "http" and secure:
        return Redirect(endpoint, f"{named}, which is not TLS although the present connection is")
    if scheme == "http" and token and not target.is_loopback and not insecure_http:
        text = "the token would travel in clear; insecure_redirect_http=True allows that"
        return Redirect(endpoint, f"{named}: {text}")
    return Redirect(f"{scheme}://{target.authority}")


def safe(target: str) -> bool:
    """Nobody on the way can read what is said there."""
    parsed = parse_target(target)
    return bool(parsed.tls) or parsed.is_loopback
