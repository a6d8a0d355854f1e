"""Notes for pip that what a PyTorch requires of NVIDIA's is installed: stand_ins.py SITE_PACKAGES.

The simulated libraries stand in for it. Without a record of each package, `pip install` of whatever
needs PyTorch would fetch them all and overwrite what stands there. Keeps: a package that is
installed is left alone.
"""

import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

packages = Path(sys.argv[1])
torch = next(iter(distributions(name="torch", path=[str(packages)])))
for required in map(Requirement, torch.requires or []):
    if not required.name.startswith(("nvidia-", "cuda-")):
        continue
    # A package's own record names its files.
    known = distributions(name=required.name, path=[str(packages)])
    if any(one.read_text("RECORD") is not None for one in known):
        continue
    # What is pinned, or the least that is wanted.
    wanted = {one.operator: one.version for one in required.specifier}
    version = wanted.get("==") or wanted.get(">=")
    if version is None:
        continue
    folder = packages / f"{required.name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in sorted(required.extras))
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {required.name}\nVersion: {version}\n{extras}"
        "Summary: the simulated device stands in for it\n")
    (folder / "INSTALLER").write_text("drystone\n")
