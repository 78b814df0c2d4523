//! The catalog that counts now.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::state::catalog::Catalog;

/// Holds the catalog. It is read without a lock, and changed by one at a time.
pub(crate) struct CatalogCell {
    now: ArcSwap<Catalog>,
    changing: Mutex<()>,
}

impl CatalogCell {
    /// A cell with this catalog.
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            now: ArcSwap::from_pointee(catalog),
            changing: Mutex::default(),
        }
    }

    /// The catalog, for a moment.
    pub(crate) fn load(&self) -> Guard<Arc<Catalog>> {
        self.now.load()
    }

    /// The catalog.
    pub(crate) fn load_full(&self) -> Arc<Catalog> {
        self.now.load_full()
    }

    /// Replace it by another that is made from it.
    ///
    /// # Errors
    ///
    /// Those of `make`; then nothing has changed.
    pub(crate) fn change<T, E>(
        &self,
        make: impl FnOnce(&Catalog) -> Result<(Catalog, T), E>,
    ) -> Result<T, E> {
        let _one = self.changing.lock();
        let (catalog, made) = make(&self.now.load())?;
        self.now.store(Arc::new(catalog));
        Ok(made)
    }
}
