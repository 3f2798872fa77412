"""A job on a cluster: launching, plugins, what its log proves."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.jobs.bootstrap import (
        BOOTSTRAP_VARIABLES,
        rendezvous_address,
        rendezvous_server,
    )
    from tuccl.runtime.jobs.changed_shape import is_table, split_host, table_for
    from tuccl.runtime.jobs.hosts import (
        HOST_LAUNCHERS,
        HOST_TOOLS,
        HostAnswer,
        HostLauncher,
        allocated_hosts,
        host_command,
        hosts_in_file,
        hosts_of,
        probe_hosts,
    )
    from tuccl.runtime.jobs.launch import run_command, run_environment, shell_block, window_notes
    from tuccl.runtime.jobs.launcher import JobLauncher, forwarding, job_launcher, ranks_in
    from tuccl.runtime.jobs.log_verdict import Verdict, verdicts
    from tuccl.runtime.jobs.machine_check import changed_machine
    from tuccl.runtime.jobs.nccl_log import (
        JobLog,
        LoggedCommunicator,
        Process,
        TorchGroup,
        read_lines,
        read_log,
    )
    from tuccl.runtime.jobs.plugin_check import PluginAnswer, check_plugin
    from tuccl.runtime.jobs.plugins import (
        SchedulerCall,
        TunerCall,
        ask_scheduler,
        ask_tuner,
        plugin_environment,
        plugin_path,
        plugin_paths,
    )

__all__ = [
    "BOOTSTRAP_VARIABLES",
    "HOST_LAUNCHERS",
    "HOST_TOOLS",
    "HostAnswer",
    "HostLauncher",
    "JobLauncher",
    "JobLog",
    "LoggedCommunicator",
    "PluginAnswer",
    "Process",
    "SchedulerCall",
    "TorchGroup",
    "TunerCall",
    "Verdict",
    "allocated_hosts",
    "ask_scheduler",
    "ask_tuner",
    "changed_machine",
    "check_plugin",
    "forwarding",
    "host_command",
    "hosts_in_file",
    "hosts_of",
    "is_table",
    "job_launcher",
    "plugin_environment",
    "plugin_path",
    "plugin_paths",
    "probe_hosts",
    "ranks_in",
    "read_lines",
    "read_log",
    "rendezvous_address",
    "rendezvous_server",
    "run_command",
    "run_environment",
    "shell_block",
    "split_host",
    "table_for",
    "verdicts",
    "window_notes",
]

make_lazy(__name__)
