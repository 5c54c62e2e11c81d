"""From a request's path to what answers it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from llm_ocr.testing.fake_hub import buckets, files, job_routes, repos
from llm_ocr.testing.fake_hub.answers import Answer, Refused, Request
from llm_ocr.testing.fake_hub.state import State

_REPO = r"/api/(?P<kind>model|dataset|space)s/(?P<repository>[^/]+/[^/]+)"
_PAGE = r"/(?:(?P<kind>dataset|space)s/)?(?P<repository>[^/]+/[^/]+)"
_BUCKET = r"/api/buckets/(?P<bucket>[^/]+/[^/]+)"
_JOBS = r"/api/jobs/(?P<namespace>[^/]+)"
_JOB = rf"{_JOBS}/(?P<job>[^/]+)"


@dataclass(frozen=True, slots=True)
class Route:
    """`operation` is what faults and counts call it."""

    operation: str
    methods: str
    pattern: re.Pattern[str]
    answer: Callable[..., Answer]


def _route(operation: str, methods: str, pattern: str, answer: Callable[..., Answer]) -> Route:
    return Route(operation, methods, re.compile(pattern), answer)


#: The first that fits answers.
ROUTES = (
    _route("whoami", "GET", r"/api/whoami-v2", repos.whoami),
    _route("create_repo", "POST", r"/api/repos/create", repos.create),
    _route("delete_repo", "DELETE", r"/api/repos/delete", repos.delete),
    _route("validate_yaml", "POST", r"/api/validate-yaml", repos.validate_yaml),
    _route("bucket_tree", "GET", rf"{_BUCKET}/tree(?:/(?P<prefix>.*))?", buckets.tree),
    _route("bucket_paths_info", "POST", rf"{_BUCKET}/paths-info", buckets.paths_info),
    _route("bucket_batch", "POST", rf"{_BUCKET}/batch", buckets.batch),
    _route("xet_token", "GET", rf"{_BUCKET}/xet-(?P<what>read|write)-token", buckets.xet_token),
    _route("create_bucket", "POST", _BUCKET, buckets.create),
    _route("bucket_info", "GET", _BUCKET, buckets.info),
    _route("delete_bucket", "DELETE", _BUCKET, buckets.delete),
    _route("bucket_resolve", "GET HEAD", r"/buckets/(?P<bucket>[^/]+/[^/]+)/resolve/(?P<path>.+)", buckets.resolve),
    _route("jobs_hardware", "GET", r"/api/jobs/hardware", job_routes.hardware),
    _route("run_job", "POST", _JOBS, job_routes.run),
    _route("list_jobs", "GET", _JOBS, job_routes.listed),
    _route("inspect_job", "GET", _JOB, job_routes.inspect),
    _route("cancel_job", "POST", rf"{_JOB}/cancel", job_routes.cancel),
    _route("job_logs", "GET", rf"{_JOB}/logs", job_routes.logs),
    _route("auth_check", "GET", rf"{_REPO}/auth-check(?:/(?P<write>write))?", repos.auth_check),
    _route("xet_token", "GET", rf"{_REPO}/xet-(?P<what>read|write)-token(?:/(?P<revision>[^/]+))?", files.xet_token),
    _route("refs", "GET", rf"{_REPO}/refs", repos.refs),
    _route("branch", "POST", rf"{_REPO}/branch/(?P<branch>.+)", repos.branch),
    _route("commits", "GET", rf"{_REPO}/commits/(?P<revision>[^/]+)", repos.commits),
    _route("tree", "GET", rf"{_REPO}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?", repos.tree),
    _route("paths_info", "POST", rf"{_REPO}/paths-info/(?P<revision>[^/]+)", repos.paths_info),
    _route("preupload", "POST", rf"{_REPO}/preupload/(?P<revision>[^/]+)", repos.preupload),
    _route("commit", "POST", rf"{_REPO}/commit/(?P<revision>[^/]+)", repos.commit),
    _route("info", "GET", rf"{_REPO}(?:/revision/(?P<revision>[^/]+))?", repos.info),
    _route("lfs_batch", "POST", rf"{_PAGE}\.git/info/lfs/objects/batch", files.lfs_batch),
    _route("lfs_verify", "POST", r"/_lfs/(?P<oid>[0-9a-f]{64})/verify", files.lfs_verify),
    _route("lfs_put", "PUT", r"/_lfs/(?P<oid>[0-9a-f]{64})", files.lfs_put),
    _route("lfs_get", "GET HEAD", r"/_lfs/(?P<oid>[0-9a-f]{64})", files.lfs_get),
    _route("resolve", "GET HEAD", rf"{_PAGE}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", files.resolve),
)


def find(request: Request) -> tuple[str, Callable[[State], Answer]]:
    """The operation, and what does it. Raises `Refused` (404) for a path that the fake does not know."""
    for route in ROUTES:
        if request.method in route.methods.split() and (found := route.pattern.fullmatch(request.path)):
            return route.operation, _bound(route, request, found)
    raise Refused(404, "", f"No route {request.method} {request.path}")


def _bound(route: Route, request: Request, found: re.Match[str]) -> Callable[[State], Answer]:
    names = {name: unquote(value) for name, value in found.groupdict().items() if value is not None}
    if "kind" in route.pattern.groupindex:
        names.setdefault("kind", "model")
    return lambda state: route.answer(state, request, **names)
