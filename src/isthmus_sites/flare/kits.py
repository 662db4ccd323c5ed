"""What NVFlare's processes run from: their addresses, keys and rules, all inside our folders.

Everything is written anew at each start, so that nothing of it can be stale.
"""

import json
from pathlib import Path
from typing import Any

from cryptography import x509

from isthmus.system.files import explain_unwritable, write_text
from isthmus_sites.flare import keys
from isthmus_sites.folders import ServerFolder, SiteFolder, make_private

BEAT = 5.0  # seconds between signs of life of a site
SILENT = 6 * BEAT  # a site that gave none for so long is gone, whatever it was at
PROJECT, SCHEME = "isthmus", "grpc"
HERE = "isthmus_sites.flare"
EXECUTOR, CONTROLLER = f"{HERE}.executor.SiteExecutor", f"{HERE}.controller.RoundController"
SITE_LAUNCHER, SERVER_LAUNCHER = f"{HERE}.gate.GatedLauncher", f"{HERE}.gate.ServerLauncher"
NVFLARE = "nvflare.app_common"
STORAGE = f"{NVFLARE}.storages.filesystem_storage.FilesystemStorage"
RIGHTS = (
    *("submit_job", "clone_job", "manage_job", "download_job", "view", "operate"),
    *("shell_commands", "byoc", "server-predeployed-flwr"),
)
ROLES = ("project_admin", "org_admin", "lead", "member")
# Each right is somebody's only if it is named here.
AT_THE_SERVER = {"submit_job": "any", "manage_job": "any", "view": "any", "operate": "any"}
AT_A_SITE = {"submit_job": "any"}


def find_startup(kit: Path) -> Path:
    """Finds where a kit has its keys and addresses."""
    return kit / "startup"


def write_server_kit(server: ServerFolder, host: str, port: int, lead_port: int) -> None:
    """Writes what the server's process, and its lead on the same machine, need beside keys."""
    kit = server.kit
    service = {"target": f"{host}:{port}", "scheme": SCHEME}
    entry = {
        "name": PROJECT,
        "service": service,
        # The lead is on this machine: no other can even try to be it.
        "admin_server": "127.0.0.1",
        "admin_host": "127.0.0.1",
        "admin_port": lead_port,
        "auth_identity": keys.SERVER,
        **_name_keys("server"),
    }
    startup = {"format_version": 2, "require_signed_jobs": True, "servers": [entry]}
    _write(find_startup(kit) / "fed_server.json", startup)
    storage = {"root_dir": str(kit / "snapshots"), "uri_root": "/"}
    keeper = {"uri_root": "/", "storage": {"path": STORAGE, "args": storage}}
    jobs = {"uri_root": str(kit / "jobs"), "job_store_id": "job_store"}
    resources = {
        **_allow(CONTROLLER),
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": SILENT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{NVFLARE}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": keeper,
        },
        "components": [
            _component(
                "job_scheduler",
                f"{NVFLARE}.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                min_schedule_interval=1.0,
            ),
            _component(
                "job_manager", "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", **jobs
            ),
            _component("job_store", STORAGE),
            _component("process_launcher", SERVER_LAUNCHER),
        ],
    }
    _write_rules(kit, resources, AT_THE_SERVER)
    lead = {
        "project_name": PROJECT,
        "username": keys.LEAD,
        "server_identity": keys.SERVER,
        "scheme": SCHEME,
        "host": "127.0.0.1",
        "port": lead_port,
        "connection_security": "mtls",
        "uid_source": "cert",
        "with_file_transfer": True,
        "upload_dir": str(server.lead / "transfer"),
        "download_dir": str(server.lead / "transfer"),
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    _write(find_startup(server.lead) / "fed_admin.json", {"format_version": 1, "admin": lead})
    waits = {"idle_timeout": 86400.0, "login_timeout": 10.0, "authenticate_msg_timeout": 5.0}
    _write(server.lead / "local" / "resources.json", {"format_version": 1, "admin": waits})
    make_private(server.lead / "transfer")


def write_site_kit(
    site: SiteFolder,
    host: str,
    port: int,
    certificate: x509.Certificate,
    authority: x509.Certificate,
) -> None:
    """Writes what a site's process needs: where its server is, its keys, and what it refuses."""
    startup = find_startup(site.kit)
    make_private(startup)
    with explain_unwritable(startup):
        (startup / "client.crt").write_bytes(keys.to_pem(certificate))
        (startup / "rootCA.pem").write_bytes(keys.to_pem(authority))
        link = startup / "client.key"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / ".." / site.key.name)  # one copy of a private key is enough
    service = {"target": f"{host}:{port}", "scheme": SCHEME}
    name = keys.name_of(certificate.subject)
    client = {**_name_keys("client"), "fqsn": name, "is_leaf": True}
    server = {"name": PROJECT, "service": service, "identity": keys.SERVER}
    _write(
        startup / "fed_client.json",
        {"format_version": 2, "require_signed_jobs": True, "servers": [server], "client": client},
    )
    write_site_rules(site)


def write_site_rules(site: SiteFolder) -> None:
    """Writes what a site allows: one class, no code, no shell, no logs to anybody."""
    gpus = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    manager = f"{NVFLARE}.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = f"{NVFLARE}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    resources = {
        **_allow(EXECUTOR),
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component("resource_manager", manager, **gpus),
            _component("resource_consumer", consumer),
            _component("process_launcher", SITE_LAUNCHER),
            _component("herald", f"{HERE}.executor.ConnectionEventWriter"),
        ],
    }
    _write_rules(site.kit, resources, AT_A_SITE)


def _write_rules(kit: Path, resources: dict[str, Any], rights: dict[str, str]) -> None:
    local = kit / "local"
    _write(local / "resources.json", {"format_version": 2, **resources})
    none = dict.fromkeys(RIGHTS, "none")
    roles = {role: {**none, **(rights if role == "lead" else {})} for role in ROLES}
    _write(local / "authorization.json", {"format_version": "1.0", "permissions": roles})
    _write(local / "comm_config.json", {"allow_adhoc_conns": False})
    _write(local / "log_config.json", _describe_logs())


def _describe_logs() -> dict[str, Any]:
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    handler = {
        "class": "logging.handlers.RotatingFileHandler",
        "formatter": "plain",
        "filename": "log.txt",
        "maxBytes": 5_000_000,
        "backupCount": 2,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": form}},
        "handlers": {"file": handler},
        "root": {"level": "INFO", "handlers": ["file"]},
    }


def _allow(path: str) -> dict[str, Any]:
    """Allows a job to name one class and no other."""
    return {"class_list_enforcement_mode": "enforce", "class_allow_list": [path]}


def _name_keys(kind: str) -> dict[str, str]:
    return {
        "ssl_private_key": f"{kind}.key",
        "ssl_cert": f"{kind}.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _write(path: Path, value: dict[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=1))
