"""Puts the kernel's jar into wheels, which takes a JDK and PySpark; pyproject.toml says all else.

Without a JDK it is left out: for clients, which need neither. ONAGER_WITHOUT_KERNEL leaves it out in any case.
"""

import importlib.util
import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
_found = importlib.util.spec_from_file_location("kernel_build", ROOT / "executor" / "spark" / "kernel_build.py")
assert _found is not None
assert _found.loader is not None
kernel_build = importlib.util.module_from_spec(_found)
_found.loader.exec_module(kernel_build)
HAS_KERNEL = not os.environ.get("ONAGER_WITHOUT_KERNEL") and kernel_build.find_javac() is not None


class BuildWithKernel(build_py):
    """Builds Python's modules and the jar beside those that use it; an editable installation makes that when needed."""

    def run(self) -> None:
        """Build."""
        super().run()
        if HAS_KERNEL and not self.editable_mode:
            jar = Path(self.build_lib, "onager", "executor", "spark", "kernel.jar")
            kernel_build.build(ROOT / "kernel" / "src" / "main" / "java", jar)


setup(cmdclass={"build_py": BuildWithKernel}, setup_requires=["pyspark~=4.3.0"] if HAS_KERNEL else [])
