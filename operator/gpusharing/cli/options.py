"""The options that commands share, spelled as kubectl spells them."""

from typing import Annotated, Literal

import typer

from gpusharing.api import names

LayoutChoice = Literal["per-node", "shared"]

KubeconfigOption = Annotated[
    str, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file; default $KUBECONFIG, else ~/.kube/config.")
]
ContextOption = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig; default the current one.")
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", envvar="GPUSHARING_NAMESPACE", help="Namespace of the controller."
    ),
]
LayoutOption = Annotated[
    LayoutChoice | None,
    typer.Option("--layout", envvar="GPUSHARING_LAYOUT", help="The controller's layout; default what its records say."),
]
SavedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help=(
            "Read a saved cluster instead of asking one; - is standard input. It is saved with: "
            f"kubectl get nodes,gsp,gpunodes,cm -n {names.NAMESPACE} -o json"
        ),
    ),
]
