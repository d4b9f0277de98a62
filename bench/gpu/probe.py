"""Times LibTorch's own CUDA kernels on GPT-2's shapes, to see which are worth replacing. Prints milliseconds."""
import torch


def time_ms(function, repeats=50):
    for _ in range(5):
        function()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        function()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def main():
    rows, device, kind = 16 * 1024, "cuda", torch.bfloat16
    for width in (768, 2304, 3072):
        gradient = torch.randn(rows, width, device=device, dtype=kind)
        ones_row = torch.ones(1, rows, device=device, dtype=kind)
        ones_8 = torch.ones(8, rows, device=device, dtype=kind)
        print(f"column sum {width}: sum {time_ms(lambda: gradient.sum(0)):.4f}  mm(ones1) {time_ms(lambda: ones_row @ gradient):.4f}"
              f"  mm(ones8) {time_ms(lambda: ones_8 @ gradient):.4f}  t@ones {time_ms(lambda: gradient.t() @ ones_row.t()):.4f}")
    q, k, v = (torch.randn(16, 1024, 768, device=device, dtype=kind) for _ in range(3))
    print(f"cat of three [16,1024,768]: {time_ms(lambda: torch.cat([q, k, v], 2)):.4f}")
    packed = torch.empty(16, 1024, 2304, device=device, dtype=kind)

    def copies():
        packed[..., :768].copy_(q)
        packed[..., 768:1536].copy_(k)
        packed[..., 1536:].copy_(v)

    print(f"three strided copies: {time_ms(copies):.4f}")
    x = torch.randn(rows, 768, device=device, dtype=kind, requires_grad=True)
    w, b = (torch.randn(768, device=device, dtype=kind, requires_grad=True) for _ in range(2))
    print(f"layer norm forward: {time_ms(lambda: torch.nn.functional.layer_norm(x.detach(), (768,), w.detach(), b.detach())):.4f}")
    g = torch.randn_like(x)
    out, mean, rstd = torch.native_layer_norm(x, (768,), w, b, 1e-5)
    for mask in ([True, True, True], [True, False, False], [False, True, True]):
        print(f"layer norm backward {mask}: {time_ms(lambda: torch.ops.aten.native_layer_norm_backward(g, x, (768,), mean, rstd, w, b, mask)):.4f}")
    h = torch.randn(rows, 3072, device=device, dtype=kind)
    print(f"gelu forward {time_ms(lambda: torch.nn.functional.gelu(h, approximate='tanh')):.4f} "
          f"backward {time_ms(lambda: torch.ops.aten.gelu_backward(h, h, approximate='tanh')):.4f}")
    print(f"add [rows,768]: {time_ms(lambda: x.detach() + g):.4f}")


if __name__ == "__main__":
    main()
