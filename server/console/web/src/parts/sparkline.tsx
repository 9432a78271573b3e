// A line of the last minute, without axes, beside the number that says how it is now.
import type { Series } from "../poll";

export function Sparkline({ series }: { series: Series }) {
  const [width, height] = [64, 18];
  const values = series.values.slice(-60).map((value) => value ?? 0);
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, at) => {
    const x = width - (values.length - 1 - at) * (width / Math.max(15, values.length - 1));
    return `${x.toFixed(1)},${(height - 1 - (value / most) * (height - 3)).toFixed(1)}`;
  });
  return (
    <svg class="sparkline" viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}
