"""An S3 server of this machine, by moto."""

import contextlib
import os
from unittest import mock

import pytest

from tests.infra.conftest import around, free_port, listens, program, service, wait_for

REGION = "eu-central-1"  # of the pages
KEYS = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "two"}


@contextlib.contextmanager
def object_store(folder):
    """The server's address, in the environment of this process too, with a bucket named bucket."""
    s3fs = pytest.importorskip("s3fs")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true", **KEYS}
    command = [program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with service(command, folder / "moto.log", env=around()), mock.patch.dict(os.environ, settings):
        wait_for(lambda: listens(port), 60, "moto's server does not start")
        s3fs.S3FileSystem().mkdir("bucket", region_name=REGION)
        yield settings
        s3fs.S3FileSystem.clear_instance_cache()
