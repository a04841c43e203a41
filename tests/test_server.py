"""When it is asked to stop, the service first says so, then finishes what it has begun."""

from __future__ import annotations

import http.client

import pictures
from serving import Files, serving, small_settings


def test_readiness_ends_first_and_requests_are_finished(small_files: Files) -> None:
    image = pictures.png()
    with serving(small_settings(small_files, shutdown_delay=1)) as service:
        connection = http.client.HTTPConnection(*service.address)
        connection.putrequest("POST", "/v1/tasks/digits/classify")
        connection.putheader("content-type", "image/png")
        connection.putheader("content-length", str(len(image)))
        connection.endheaders(image[:10])
        service.server.should_exit = True  # what SIGTERM sets
        service.until(lambda: service.client.get("/readyz").status_code == 503)
        assert service.classify(image).status_code == 200
        connection.send(image[10:])
        assert connection.getresponse().status == 200
        connection.close()
