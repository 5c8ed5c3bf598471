"""Compresses webhook bodies with a dictionary of the text that every workflow_job body repeats.

A body is mostly field names and URLs in a known order (octokit/webhooks, workflow_job). `DICTIONARY`
must never change, because stored bodies can only be read with the dictionary that wrote them.
"""

from collections.abc import Sequence
from functools import cache
from threading import local
from typing import Final

import zstandard

_LEVEL = 3
"""As fast as level 1 on a body of 12 KB, with output a tenth smaller."""

_MAX_BODY_BYTES: Final = 2 * 2**20
"""Twice the largest delivery (1 MiB). A damaged row must not allocate gigabytes."""

_REPOSITORY_URLS = (
    "forks keys{/key_id} collaborators{/collaborator} teams hooks issue_events:issues/events{/number} "
    "events assignees{/user} branches{/branch} tags blobs:git/blobs{/sha} git_tags:git/tags{/sha} "
    "git_refs:git/refs{/sha} trees:git/trees{/sha} statuses/{sha} languages stargazers contributors "
    "subscribers subscription commits{/sha} git_commits:git/commits{/sha} comments{/number} "
    "issue_comment:issues/comments{/number} contents/{+path} compare/{base}...{head} merges "
    "archive:{archive_format}{/ref} downloads issues{/number} pulls{/number} milestones{/number} "
    "notifications{?since,all,participating} labels{/name} releases{/id} deployments"
)
_ACCOUNT_URLS = (
    "followers following{/other_user} gists{/gist_id} starred{/owner}{/repo} subscriptions "
    "organizations:orgs repos events{/privacy} received_events"
)
_ORGANISATION_URLS = (
    "repos events hooks issues members{/member} public_members{/member}",
    "https://api.github.com/orgs/acme",
)
_REPO = "https://api.github.com/repos/acme/widgets"
_PAGE = "https://github.com/acme/widgets"


def _urls(named: str, at: str) -> str:
    """Return URL fields as GitHub writes them, from `name:path` words or paths that start with a name."""
    written = []
    for word in named.split():
        name, colon, path = word.partition(":")
        path = path if colon else word
        name = name if colon else word.partition("{")[0].rstrip("/")
        written.append(f'"{name}_url":"{at}/{path}"')
    return ",".join(written)


def _account(kind: str) -> str:
    user = "https://api.github.com/users/acme"
    return (
        '{"login":"acme","id":1000001,"node_id":"MDEyOk9yZ2FuaXphdGlvbj","avatar_url":'
        '"https://avatars.githubusercontent.com/u/1000001?v=4","gravatar_id":"",'
        f'"url":"{user}","html_url":"https://github.com/acme",{_urls(_ACCOUNT_URLS, user)},'
        f'"type":"{kind}","user_view_type":"public","site_admin":false}}'
    )


def _job(action: str, status: str, conclusion: str, runner: str) -> str:
    step = (
        '{"name":"Set up job","status":"completed","conclusion":"success","number":1,"started_at":'
        '"2026-01-01T00:00:00Z","completed_at":"2026-01-01T00:00:00Z"},'
        '{"name":"Run actions/checkout@v4","status":"completed","conclusion":"success","number":2,'
        '{"name":"Complete job","status":"in_progress","conclusion":"skipped","number":3,'
    )
    return (
        f'{{"action":"{action}","workflow_job":{{"id":50000000001,"run_id":20000000001,'
        f'"workflow_name":"CI","head_branch":"main","run_url":"{_REPO}/actions/runs/20000000001",'
        '"run_attempt":1,"node_id":"CR_kwDO","head_sha":"0123456789abcdef",'
        f'"url":"{_REPO}/actions/jobs/50000000001",'
        f'"html_url":"{_PAGE}/actions/runs/20000000001/job/50000000001",'
        f'"status":"{status}","conclusion":{conclusion},"created_at":"2026-01-01T00:00:00Z",'
        '"started_at":"2026-01-01T00:00:00Z","completed_at":null,"name":"build",'
        f'"steps":[{step}],"check_run_url":"{_REPO}/check-runs/50000000001",'
        f'"labels":["self-hosted","linux","x64","gpu"],{runner}}},'
    )


def _repository() -> str:
    return (
        '"repository":{"id":100000001,"node_id":"R_kgDO","name":"widgets","full_name":"acme/widgets",'
        f'"private":true,"owner":{_account("Organization")},"html_url":"{_PAGE}","description":null,'
        f'"fork":false,"url":"{_REPO}",{_urls(_REPOSITORY_URLS, _REPO)},'
        '"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z",'
        '"pushed_at":"2026-01-01T00:00:00Z","git_url":"git://github.com/acme/widgets.git",'
        '"ssh_url":"git@github.com:acme/widgets.git","clone_url":"https://github.com/acme/widgets.git",'
        f'"svn_url":"{_PAGE}","homepage":null,"size":1000,"stargazers_count":0,"watchers_count":0,'
        '"language":"Python","has_issues":true,"has_projects":true,"has_downloads":true,'
        '"has_wiki":true,"has_pages":false,"has_discussions":false,"forks_count":0,"mirror_url":null,'
        '"archived":false,"disabled":false,"open_issues_count":0,"license":{"key":"mit","name":'
        '"MIT License","spdx_id":"MIT","url":"https://api.github.com/licenses/mit","node_id":'
        '"MDc6TGljZW5zZTEz"},"allow_forking":true,"is_template":false,'
        '"web_commit_signoff_required":false,"topics":[],"visibility":"private","forks":0,'
        '"open_issues":0,"watchers":0,"default_branch":"main","custom_properties":{}},'
    )


def _organisation() -> str:
    named, at = _ORGANISATION_URLS
    return (
        '"organization":{"login":"acme","id":1000001,"node_id":"MDEyOk9yZ2FuaXphdGlvbj",'
        f'"url":"{at}",{_urls(named, at)},'
        '"avatar_url":"https://avatars.githubusercontent.com/u/1000001?v=4","description":""},'
    )


def _dictionary() -> bytes:
    """Return the dictionary, the most frequent text last: a near match takes fewer bytes."""
    none = '"runner_id":null,"runner_name":null,"runner_group_id":null,"runner_group_name":null'
    some = '"runner_id":100001,"runner_name":"","runner_group_id":1,"runner_group_name":"Default"'
    return "".join(
        (
            _job("waiting", "waiting", "null", none),
            _job("completed", "completed", '"success"', some),
            _job("completed", "completed", '"failure"', some),
            _job("completed", "completed", '"cancelled"', some),
            _job("in_progress", "in_progress", "null", some),
            _job("queued", "queued", "null", none),
            _repository(),
            _organisation(),
            f'"sender":{_account("User")},',
            '"installation":{"id":10000001,"node_id":"MDIzOkludGVncmF0aW9uSW5zdGFsbGF0aW9u"}}',
        )
    ).encode()


DICTIONARY: Final = _dictionary()

_of_thread = local()
"""Holds a compressor for each thread, because a compressor is not thread-safe."""


def compress(body: bytes) -> bytes:
    """Return the body as one Zstandard frame that states the body's length."""
    return _compressor().compress(body)


def compress_all(bodies: Sequence[bytes]) -> list[bytes]:
    """Return each body as `compress` does.

    Releases the interpreter lock once for all bodies instead of once per body, because getting the
    lock back takes up to 5 ms while the event loop computes.
    """
    if len(bodies) < 2 or not any(bodies):
        return [compress(body) for body in bodies]
    frames = _compressor().multi_compress_to_buffer(list(bodies))
    return [frames[place].tobytes() for place in range(len(frames))]


def decompress(stored: bytes) -> bytes:
    """Return the original body.

    Raises: ValueError if the stored bytes are damaged.
    """
    try:
        length = zstandard.frame_content_size(stored)
        if not 0 <= length <= _MAX_BODY_BYTES:
            raise ValueError(f"the frame states no length up to {_MAX_BODY_BYTES} bytes")
        return zstandard.ZstdDecompressor(dict_data=_dictionary_data()).decompress(stored)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


@cache
def _dictionary_data() -> zstandard.ZstdCompressionDict:
    data = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    data.precompute_compress(level=_LEVEL)
    return data


def _compressor() -> zstandard.ZstdCompressor:
    compressor: zstandard.ZstdCompressor | None = getattr(_of_thread, "compressor", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary_data())
        _of_thread.compressor = compressor
    return compressor
