"""The compiled walk, built where there is a compiler; everything else about the package is in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup

# CPython's limited API: one build for 3.11 and all later versions.  Free-threaded Python has none, and goes by numpy.
free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# a * b + c in one step would round once where numpy rounds twice
flags = [] if sysconfig.get_platform().startswith("win") else ["-O3", "-ffp-contract=off"]
native = Extension(
    "cstc._native",
    ["native/_native.c"],
    extra_compile_args=flags,
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=True,
)
setup(
    ext_modules=[] if free_threaded else [native],
    options={} if free_threaded else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
