// The mark of Onager: the head of a wild ass.
import { html } from "../lib/html.js";

export function Mark() {
  return html`<svg viewBox="0 0 20 20" aria-hidden="true">
    <path
      fill="currentColor"
      d="M5 1c1.8 1 2.8 2.700 3 5h4c.2-2.300 1.200-4 3-5 .9 2.200.8 4.400-.3 6.400.9 1 1.300 2.300 1.300 3.600 0 2.200-1.600 3.400-2.300 5-.6 1.500-1.700 3-3.700 3s-3.100-1.500-3.700-3c-.7-1.600-2.300-2.800-2.300-5 0-1.300.4-2.600 1.300-3.600C4.200 5.400 4.100 3.200 5 1z"
    />
  </svg>`;
}
