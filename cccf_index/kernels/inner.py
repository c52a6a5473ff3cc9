"""A lighter compilation for kernels that only other kernels call.

numba optimises each function and makes machine code of it, then links it into its callers, where it is optimised again:
the innermost code of a search went through LLVM ten times. Inner kernels are only typed and lowered to LLVM's language;
they are optimised once, where an entry point has linked them all. So they cannot be called from Python; tests compile
``kernel.py_func`` as an entry point.
"""

from __future__ import annotations

from typing import Any

from numba.core import codegen, compiler, compiler_machinery, typed_passes

# Passes for what kernels do not have: closures, comprehensions, array expressions, contexts, generators.
UNUSED = {
    "WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables",
    "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites",
    "DumpParforDiagnostics", "IRLegalization",
}  # fmt: skip


class InnerLibrary(codegen.JITCodeLibrary):
    """The code of an inner kernel: it is linked into an entry point's, and nothing else."""

    def finalize(self) -> None:
        """Leave linking, optimisation and machine code to the entry point."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        return self._final_module

    def list_libraries(self) -> list[Any]:
        """Return this library and all that it needs, callers before what they call."""
        return list(dict.fromkeys([self, *self._linking_libraries]))


class EntryLibrary(codegen.JITCodeLibrary):
    """The code of an entry point with that of all its inner kernels, which nothing else can call."""

    def finalize(self) -> None:
        """Link, optimise and make machine code, once for all."""
        self._own = {function.name for function in self._final_module.functions if not function.is_declaration}
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.name not in self._own and not function.is_declaration:
                function.linkage = "internal"
        super()._optimize_final_module()


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(typed_passes.NativeLowering):
    """Lower an inner kernel into an `InnerLibrary`."""

    _name = "cccf_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower, and tell callers what to link; see `numba.core.typed_passes.BaseNativeLowering`."""
        context = state.targetctx
        state.library = InnerLibrary(context.codegen(), state.func_id.func_qualname)
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        placeholder: Any = [].__getitem__  # a dispatcher wants a built-in function, another one for each overload
        context.insert_user_function(placeholder, state.cr.fndesc, state.library.list_libraries())
        state.cr = state.cr._replace(cfunc=placeholder)
        return True


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class EntryLowering(typed_passes.NativeLowering):
    """Lower an entry point into an `EntryLibrary`."""

    _name = "cccf_entry_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower, without what only C could call."""
        state.library = EntryLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_cfunc_wrapper = True
        return bool(super().run_pass(state))


class KernelCompiler(compiler.CompilerBase):
    """numba's compiler for nopython mode, with the passes that kernels need and a lowering of their own."""

    lowering: Any

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        manager = compiler_machinery.PassManager("cccf_index")
        for step, name in compiler.DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step is typed_passes.NativeLowering:
                manager.add_pass(self.lowering, name)
            elif step.__name__ not in UNUSED:
                manager.add_pass(step, name)
        manager.finalize()
        return [manager]


class InnerCompiler(KernelCompiler):
    """For kernels that only other kernels call."""

    lowering = InnerLowering


class EntryCompiler(KernelCompiler):
    """For kernels that Python calls."""

    lowering = EntryLowering
