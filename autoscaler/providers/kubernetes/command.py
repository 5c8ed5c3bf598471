"""Makes the command of a pod's container. Pure.

It fetches the agent from the controller, as the user data does on EC2, and runs it. So a pod runs the agent of
the controller that launched it, whatever image it has: GitHub's own image needs no change. The command contains
no secret.

It finds its folders below `RUNNER_AGENT_ROOT`, which only the laboratory sets.
"""

import json
import re

MAX_CA_BYTES = 64 * 1024
"""Linux allows 128 KiB for one argument (execve(2), MAX_ARG_STRLEN)."""

_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/\-]*)?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

# A container's first process ignores SIGTERM unless it handles it (pid_namespaces(7)).
# The 900 seconds are the agent's PATIENCE. After them the container fails, and with it the pod.
_FETCH = """\
import hashlib, http.client, json, os, random, signal, ssl, sys, time, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
os.umask(0o077)
root = os.environ.get('RUNNER_AGENT_ROOT', '')
folder = root + '/run/runner-agent/'
controller = json.loads(sys.argv[1])
url = controller['controller'] + '/bootstrap/agent.py?sha256=@SHA256@'
context = ssl.create_default_context(cadata=controller['ca'])
end = time.monotonic() + 900
while True:
    try:
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            agent = answer.read(1 << 20)
        if hashlib.sha256(agent).hexdigest() == '@SHA256@':
            break
        why = 'the answer is not the agent'
    except (OSError, http.client.HTTPException) as error:
        why = error
    print('cannot fetch the agent from', url + ':', why, file=sys.stderr, flush=True)
    if time.monotonic() > end:
        sys.exit(1)
    time.sleep(3 + 4 * random.random())
with open(folder + 'agent.py', 'wb') as file:
    file.write(agent)
with open(folder + 'controller.json', 'w') as file:
    json.dump(controller, file)
host = root + '/etc/runner-agent/host.json'
agent = folder + 'agent.py'
os.execv(sys.executable, ['python3', '-I', '-S', agent, 'pod', '--host-file', host])
"""


def pod_command(
    controller_url: str, provider: str, agent_sha256: str, ca_pem: str | None = None
) -> tuple[str, ...]:
    """Return the command that runs the agent.

    `controller_url` is the controller's URL without a query, `provider` the provider's name in the
    configuration, `agent_sha256` the hash (hex) of the agent to fetch, `ca_pem` the CA certificates for the
    controller's URL (None: the system's). Raises ValueError for a value that cannot be part of a command.
    """
    url = controller_url.rstrip("/")
    if not _URL.match(url):
        raise ValueError(f"not a plain http or https URL: {controller_url!r}")
    if not _SHA256.match(agent_sha256):
        raise ValueError("agent_sha256 is not 64 lower-case hexadecimal digits")
    if ca_pem is not None and "PRIVATE KEY" in ca_pem:
        raise ValueError("the CA file contains a private key; leave only certificates in it")
    if ca_pem is not None and len(ca_pem.encode()) > MAX_CA_BYTES:
        raise ValueError(f"the CA file is larger than {MAX_CA_BYTES} bytes")
    controller = json.dumps({"controller": url, "provider": provider, "ca": ca_pem})
    # Kubernetes replaces $(NAME) in commands (API reference, Container.command).
    fetch = _FETCH.replace("@SHA256@", agent_sha256)
    return ("python3", "-I", "-S", "-c", fetch, controller.replace("$", "\\u0024"))
